"""Plan, run and record studies; each command is a module. docs/architecture.md describes the package."""

from study.own_packages import require_not_shadowed

require_not_shadowed("search_spaces", "trainables")
