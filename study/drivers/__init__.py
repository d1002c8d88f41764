"""Drivers: the loop of a launch, two ways to reach workers, and the workers themselves."""
