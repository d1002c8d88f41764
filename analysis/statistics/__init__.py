"""Tests, spreads, exits and costs: records and predictions in, numbers out."""
