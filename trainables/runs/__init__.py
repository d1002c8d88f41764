"""Trials and pretraining runs, with their saved states and models."""
