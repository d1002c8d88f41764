"""GLUE, users' own tasks, and the metrics of both."""
