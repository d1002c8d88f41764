"""Rules that every method must satisfy."""
