"""What data, corpora and backbones have in common that lie on the Hugging Face hub."""

from collections.abc import Iterator
from contextlib import contextmanager

HUB_SECONDS = 5  # to wait for the hub's answer


class HubUnreachable(ValueError):
    """Something is neither in the local cache nor can the hub be asked for it."""


@contextmanager
def hub_errors(what: str, *, allowed: str, offline: str) -> Iterator[None]:
    """What goes wrong with the hub, in one line.

    Args:
        what: is asked for, with its kind: `backbone 'NAME'`.
        allowed: what could be given instead.
        offline: what to do where there is no network.

    Raises:
        HubUnreachable: the hub cannot be asked.
        ValueError: it does not have that.
    """
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except RevisionNotFoundError as error:
        raise ValueError(f"{what}: the hub has no such revision; allowed: {allowed}") from error
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise ValueError(f"{what} is not on the hub; allowed: {allowed}") from error
    except Exception as error:  # HF_HUB_OFFLINE, and whatever the network library of the day raises
        reason = f"{what} is not in the local cache and the hub cannot be reached"
        raise HubUnreachable(f"{reason}; allowed: {allowed}; to work offline {offline}") from error
