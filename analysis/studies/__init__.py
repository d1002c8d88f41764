"""Read study folders and outside predictions; group the records into the cells and rows of tables."""
