"""Plan, run and record studies; each command is a module. docs/architecture.md describes the package."""

from study.own_packages import end_in_one_line, require_own

end_in_one_line()
require_own("search_spaces", "trainables")
