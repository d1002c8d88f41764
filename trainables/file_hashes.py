"""What a file holds, as a hash."""

import hashlib
from functools import lru_cache
from pathlib import Path


def hash_of_file(file: Path) -> str:
    """SHA-256 of a file's content in hexadecimal digits; read once, and again when its size or time changes."""
    found = file.stat()
    return _hash(file, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=None)
def _hash(file: Path, size: int, modified: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
