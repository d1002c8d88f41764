"""The study orchestrator: plans, decisions, drivers, journal, commands. See docs/architecture.md."""

from study.own_packages import end_in_one_line, require_own

end_in_one_line()
require_own("search_spaces", "trainables")
