"""The storage of trial files, and checks of the addresses and output paths that users give."""
