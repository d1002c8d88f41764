"""Decisions computed only from a study's journal: which trial runs next, which stops, how much GPU time is left."""
