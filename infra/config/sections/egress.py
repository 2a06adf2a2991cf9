"""Addresses that training pods may reach by HTTPS."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from infra.config.errors import ConfigIssue, shown
from infra.config.partial import Check, PartialStack

_METADATA: Final = tuple(map(ipaddress.ip_network, ("169.254.0.0/16", "fd00:ec2::/32")))


def check_egress(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject egress to the metadata service, which returns the node's credentials."""
    blocks: Any = stack.raw.get("egressCidrs")
    for index, text in enumerate(blocks if isinstance(blocks, list) else ()):
        try:
            block = ipaddress.ip_network(text)
        except ValueError:
            continue
        for held in _METADATA:
            if held.version == block.version and held.supernet_of(block):  # type: ignore[arg-type]
                yield ConfigIssue(
                    path=f"egressCidrs[{index}]",
                    code="egress-to-metadata",
                    problem=f"{shown(text)} is in {held}, the range of the metadata service",
                    valid="must not expose the node's credentials",
                    action="remove it; pods get their own role by EKS Pod Identity",
                )


CHECKS: Final[tuple[Check, ...]] = (check_egress,)
