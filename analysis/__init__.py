"""Tables, statistics, pictures and reports of finished or running studies. Needs neither torch nor Ray."""
