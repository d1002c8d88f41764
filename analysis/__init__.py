"""Tables, statistics, pictures and reports of finished or running studies. Needs neither torch nor Ray."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

# By its path: `import study` may find somebody else's.
_spec = spec_from_file_location("own_packages", Path(__file__).parents[1] / "study" / "own_packages.py")
assert _spec is not None and _spec.loader is not None
_own_packages = module_from_spec(_spec)
_spec.loader.exec_module(_own_packages)
_own_packages.end_in_one_line()
_own_packages.require_own("search_spaces", "study", "trainables")
