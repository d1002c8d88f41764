"""Tests, spreads, exits and costs, computed from records and stored predictions."""
