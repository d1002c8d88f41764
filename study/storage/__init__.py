"""Places of the trials' files, and checks of addresses and output paths that users give."""
