"""The study orchestrator: plan, engine, journal, tracking. See docs/architecture.md."""

from study.early_interrupt import end_in_one_line
from study.own_packages import require_own

end_in_one_line()
require_own("search_spaces", "trainables")
