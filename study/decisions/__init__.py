"""Decisions: what runs next, what stops and what it may cost, by the facts alone."""
