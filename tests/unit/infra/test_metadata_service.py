"""Team pods cannot reach the instance metadata service, which would give them the node role."""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from infra.cli.render import ROOT, Record, render
from infra.config import stack_values
from tests import committed

METADATA = ("169.254.169.254", "fd00:ec2::254")


def _blocks(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Every block of addresses that some policy opens: a team's on any port, the platform's on the
    service's, which is 80."""
    for record in records:
        if record["inputs"].get("kind") == "NetworkPolicy":
            teams = record["inputs"]["metadata"]["namespace"].startswith("team-")
            for rule in record["inputs"]["spec"].get("egress", []):
                ports = {port["port"] for port in rule.get("ports", [{"port": 80}])}
                if not teams and 80 not in ports:
                    continue
                # A rule without `to` opens everything.
                for peer in rule.get("to") or [{"ipBlock": {"cidr": "0.0.0.0/0"}}]:
                    if "ipBlock" in peer:
                        yield peer["ipBlock"]


def _opens(block: dict[str, Any], address: str) -> bool:
    one = ipaddress.ip_address(address)
    held = [ipaddress.ip_network(cidr) for cidr in block.get("except", [])]
    return one in ipaddress.ip_network(block["cidr"]) and not any(one in h for h in held)


@pytest.mark.parametrize("stack", ["local", "dev", "prod"])
def test_no_network_policy_of_a_committed_stack_opens_the_metadata_service(stack: str) -> None:
    blocks = list(_blocks(committed.rendered(stack)))
    assert not [b for b in blocks for address in METADATA if _opens(b, address)]
    # Counterpart: required addresses are open.
    agent = any(_opens(block, "169.254.170.23") for block in blocks)
    assert agent == (stack != "local")


def test_cidrs_of_the_whole_internet_exclude_the_metadata_service() -> None:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.dev.yaml"))
    values["egressCidrs"] = ["0.0.0.0/0", "::/0", "fd00::/8", "169.0.0.0/8"]
    blocks = list(_blocks(render("dev", values)))
    assert not [b for b in blocks for address in METADATA if _opens(b, address)]
    assert any(_opens(block, "52.216.1.1") for block in blocks)
