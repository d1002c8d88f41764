"""Passwords in addresses: found, so that they are refused, and hidden wherever a text may repeat one."""

from __future__ import annotations

import re
from urllib.parse import unquote

# Names of parameters: those that have one of these in them, and those that are one of these.
_PARTS = r"pass|pwd|secret|token|credential|(?:access|api|account|shared)[_-]?key|signature"
_WHOLE = r"key|sig|pw|auth"
_NAME = rf"(?:[^=&;\s]*(?:{_PARTS})[^=&;\s]*|{_WHOLE})"
_PARAMETER = re.compile(rf"([?&;]{_NAME}=)[^&;\s'\"]+", re.IGNORECASE)
_USER = re.compile(r"(\w://[^/?#\s:@]*):[^\s'\"]*@")  # to the last "@": an unquoted one may stand in the password
_TOKEN = re.compile(r"(\bhttps?://)[^/?#\s:@]+@", re.IGNORECASE)  # whoever is named alone in front of a web server


def masked(text: str) -> str:
    """`text` with the password of every URI in it hidden."""
    return _PARAMETER.sub(r"\1***", _TOKEN.sub(r"\1***@", _USER.sub(r"\1:***@", text)))


def has_secret_parameter(query: str) -> bool:
    """Whether a parameter of a URI's query is named like a password, within another parameter's value too."""
    return _PARAMETER.search(f"?{unquote(query)}") is not None
