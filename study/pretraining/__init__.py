"""The folder of a pretraining, for `study.pretrain`."""
