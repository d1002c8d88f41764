"""Whether a tracking server answers, asked without MLflow, which takes seconds to import."""

from __future__ import annotations

import ssl
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

SECONDS = 3.0  # that an answer may take


def silence_of(uri: str) -> str | None:
    """Why the server at this address does not answer; None where it does, whatever it says, or is no web server.

    A certificate that Python does not know is no silence: MLflow may have been told of it.
    """
    if not uri.startswith(("http://", "https://")):
        return None
    try:
        urlopen(f"{uri.rstrip('/')}/health", timeout=SECONDS).close()
    except HTTPError:
        return None
    except (OSError, URLError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):
            return None
        return getattr(reason, "strerror", None) or str(reason)
    return None
