"""Facts: the journal's events and what they add up to."""
