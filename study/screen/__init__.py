"""Terminal output: the live table of a launch, and the wording that all commands share."""
