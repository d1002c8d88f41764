"""Folders and URIs of trials, and the addresses that people give."""
