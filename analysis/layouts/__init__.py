"""Layouts of the tables: columns, captions and notes, and their rendering in every format."""
