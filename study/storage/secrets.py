"""Passwords in addresses: found, so that they are refused, and hidden wherever a text may repeat one."""

from __future__ import annotations

import re
from urllib.parse import unquote

_NAMES = r"pass|pwd|secret|token|credential|access_?key|api_?key|signature"  # of parameters
_PARAMETER = re.compile(rf"([?&;][^=&;\s]*(?:{_NAMES})[^=&;\s]*=)[^&;\s'\"]+", re.IGNORECASE)
_USER = re.compile(r"(\w://[^/?#\s:@]*):[^\s'\"]*@")  # to the last "@": an unquoted one may stand in the password


def masked(text: str) -> str:
    """`text` with the password of every URI in it hidden."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1:***@", text))


def has_secret_parameter(query: str) -> bool:
    """Whether a parameter of a URI's query is named like a password, within another parameter's value too."""
    return _PARAMETER.search(f"?{unquote(query)}") is not None
