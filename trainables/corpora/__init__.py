"""Text for pretraining, and batches of it."""
