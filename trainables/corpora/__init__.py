"""Text to pretrain on, and the batches of it."""
