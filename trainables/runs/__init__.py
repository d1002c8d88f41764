"""Trials and pretraining runs, their states and their models."""
