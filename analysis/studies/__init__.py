"""Read study folders; group records into the cells and rows of tables."""
