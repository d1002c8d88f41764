"""The study orchestrator: plan, engine, journal, tracking. See docs/architecture.md."""

from study.own_packages import require_own

require_own("search_spaces", "trainables")
