"""Plans: what a user asks for, and the arms (a method on a task), configurations and protocol derived from it."""
