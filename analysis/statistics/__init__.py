"""Compute tests, standard deviations, early exits and costs from records and stored predictions."""
