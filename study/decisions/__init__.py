"""Decisions of a study: which trial runs next, which one stops, and what follows from machine faults."""
