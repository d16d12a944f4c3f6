"""What to do when a server takes no login: by the methods it takes (RFC 4252 and 4462 name them). Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["KEYS", "gssapi", "own_remedy", "system_remedy"]

KEYS = "check the user, the identity file, and authorized_keys on the node"
_TICKET = "get a Kerberos ticket for it (kinit)"


def gssapi(methods: Sequence[str]) -> bool:
    """Whether Kerberos opens it."""
    return any(method.startswith("gssapi") for method in methods)


def own_remedy(methods: Sequence[str]) -> str:
    """For our own client, which knows keys alone."""
    if not methods or "publickey" in methods:
        return KEYS + (f"; or {_TICKET}, and --transport openssh" if gssapi(methods) else "")
    if gssapi(methods):
        return f"it takes no keys but GSSAPI, which --transport openssh does: {_TICKET}"
    return "it takes no keys: let its sshd take them (PubkeyAuthentication)"


def system_remedy(methods: Sequence[str], *, tried: bool) -> str:
    """For the system's ssh; ``tried``: whether it was configured to try GSSAPI."""
    if not gssapi(methods):
        return KEYS
    words = _TICKET if tried else f"{_TICKET}, and say GSSAPIAuthentication yes in ~/.ssh/config"
    return f"{KEYS}; or {words}" if "publickey" in methods else words
