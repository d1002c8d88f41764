"""Files that are written whole or not at all, sources of data on the hub and on disk, and the files of methods."""
