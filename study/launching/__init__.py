"""How a launch gets its study: options, the plan that they make, its forecast, and what the screen shows."""
