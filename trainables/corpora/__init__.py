"""Text for pretraining, and its batches."""
