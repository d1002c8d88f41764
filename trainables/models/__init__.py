"""Models with early exits, and exit rules."""
