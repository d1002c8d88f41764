"""Drivers, which hand trials to workers on Ray or in local processes, and the workers."""
