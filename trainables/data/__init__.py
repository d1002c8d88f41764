"""GLUE, tasks of one's own, and their metrics."""
