"""Pretraining: corpora, batches, models and runs, and the objectives, one file each."""
