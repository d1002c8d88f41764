"""Where trials keep their files, and checks of addresses and output paths that users give."""
