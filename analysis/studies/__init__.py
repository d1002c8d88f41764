"""Folders in, records and cells out."""
