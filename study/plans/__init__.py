"""The plan of a user, and the arms (a method on a task), configurations and protocol that follow from the plan."""
