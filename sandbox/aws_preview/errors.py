"""Error of requests that the stand-ins do not support."""

from __future__ import annotations


class NotSupportedError(Exception):
    """The text is one line with cause and remedy."""


def remedy(package: str, version: str) -> str:
    """Return the remedy: how to run with the official plugin of a package."""
    return (
        f"run `pulumi preview` with an account and the official plugin (pulumi plugin install resource {package}"
        f" {version})"
    )
