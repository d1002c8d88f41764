"""Read study folders and predictions of other programs; group records into the cells and rows of tables."""
