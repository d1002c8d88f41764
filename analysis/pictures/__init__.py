"""The six pictures of a study."""
