"""The data and metrics of GLUE and of users' own tasks."""
