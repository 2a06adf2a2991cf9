"""What the stand-ins refuse, in the words that the user reads."""

from __future__ import annotations


class NotSupportedError(Exception):
    """The text is one line: what, why, remedy."""


def remedy(package: str, version: str) -> str:
    """How to get what only the official plugin of a package can do."""
    return (
        f"run it where the official plugin can be had (pulumi plugin install resource {package}"
        f" {version})"
    )
