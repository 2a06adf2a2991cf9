"""Signatures: one signer, whose signatures can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.config.checks.parts import Parts
from infra.config.mistakes import Mistake


def one_signer(parts: Parts) -> Iterator[Mistake]:
    """Either an identity or a key signs; a key is read by a role that only EKS hands to pods."""
    section: Any = parts.raw.get("signatures")
    if not isinstance(section, dict):
        return
    named = [key for key in ("keyless", "kmsKey") if section.get(key) is not None]
    if len(named) != 1:
        yield Mistake(
            path="signatures",
            got=" and ".join(named) or "no signer",
            allowed="keyless or kmsKey",
            remedy="remove one of them" if named else "add one, or remove signatures",
        )
    elif named == ["kmsKey"] and parts.provider != "eks":
        yield Mistake(
            path="signatures.kmsKey",
            got="a key of AWS",
            allowed="keyless where cluster.provider is existing, for nothing there may read the key",
            remedy="set keyless",
        )
