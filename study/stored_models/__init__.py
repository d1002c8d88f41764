"""The models that a study's final runs have left: which one a command means, and what is measured with them."""
