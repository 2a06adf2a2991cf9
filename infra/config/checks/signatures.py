"""Signatures: one signer, whose signatures can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue


def check_single_signer(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one signer; a KMS key requires a role that only EKS gives to pods."""
    section: Any = parts.raw.get("signatures")
    if not isinstance(section, dict):
        return
    named = [key for key in ("keyless", "kmsKey") if section.get(key) is not None]
    if len(named) != 1:
        yield ConfigIssue(
            path="signatures",
            code="single-signer",
            problem=f"{' and '.join(named)} are set" if named else "no signer is set",
            valid="exactly one of keyless and kmsKey is required",
            action="remove one of them" if named else "add one, or remove signatures",
        )
    elif named == ["kmsKey"] and parts.provider == "existing":
        yield ConfigIssue(
            path="signatures.kmsKey",
            code="aws-only",
            problem="a KMS key requires a cluster on AWS",
            valid="must be keyless where cluster.provider is existing",
            action="set keyless",
        )
