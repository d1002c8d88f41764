"""Decisions, made from the facts alone: which trial runs next, which stops, and how much they may cost."""
