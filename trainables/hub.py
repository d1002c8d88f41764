"""What data and backbones have in common that lie on the Hugging Face hub."""


class HubUnreachable(ValueError):
    """Something is neither in the local cache nor can the hub be asked for it."""
