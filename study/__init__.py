"""Plan, run and record studies; each command is a module. docs/architecture.md describes the package."""

from study.terminal.processes import handle_interrupts_early, require_environment, require_not_shadowed

require_environment()
handle_interrupts_early()
require_not_shadowed("search_spaces", "trainables")
