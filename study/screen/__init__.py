"""The progress of a study on a screen."""
