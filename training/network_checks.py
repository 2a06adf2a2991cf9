"""Check the network settings of a run against the networks of its pools."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from infra.domain import fabric
from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, issue, shown
from infra.tenancy.network_policies import RUN_PORTS
from trainer.config.rules import check_uri
from training import placement
from training.run_schema import RunFile
from training.spec import RunSpec


def check_network(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Yield issues of an interface that pods do not have, and of an MTU that it does not have."""
    pools = placement.eligible_pools(run, platform)
    names = {fabric.expected_interface(pool) for pool in pools} - {""}
    if run.network.interface and names and run.network.interface not in names:
        yield issue(
            "unknown-interface",
            "network.interface",
            f"pods of the run's pools have no interface {shown(run.network.interface)}",
            f"must be {' or '.join(sorted(names))}",
            "remove it: the platform sets it",
        )
    if run.network.mtu is None:
        return
    for pool in pools:
        mtu = fabric.expected_mtu(pool)
        if mtu is None:
            yield issue(
                "unknown-mtu",
                "network.mtu",
                f"the MTU of pool {pool.name} is not known",
                "requires fabric.mtu of the pool in the stack file",
                "set it there, where the node validation measures it, or remove network.mtu",
            )
        elif mtu < run.network.mtu:
            yield issue(
                "mtu-too-large",
                "network.mtu",
                f"{run.network.mtu} is more than {mtu}, the MTU of pool {pool.name}",
                f"must be at most {mtu}",
                "lower it, or exclude the pool by gpuModel or allowSpot",
            )


_HTTPS: Final = 443


def check_report(settings: Mapping[str, Any], platform: Platform) -> Iterator[ConfigIssue]:
    report = settings.get("report")
    if isinstance(report, Mapping) and isinstance(uri := report.get("mlflow"), str):
        yield from _tracking_server("config: report.mlflow", uri, platform)


def check_program(file: RunFile, platform: Platform) -> Iterator[ConfigIssue]:
    path, uri = "program.trackingUri", file.program.tracking_uri if file.program else None
    if not uri:
        return
    if urlsplit(uri).scheme not in ("http", "https"):
        yield issue(
            "invalid-uri",
            path,
            f"{shown(uri)} is not a tracking server",
            "must be http://SERVER or https://SERVER",
            "correct it; a file of MLflow is for the program's own client, by program.env",
        )
        return
    for found in check_uri(path, uri):
        yield ConfigIssue(**vars(found))
        return
    yield from _tracking_server(path, uri, platform)


def _tracking_server(path: str, uri: str, platform: Platform) -> Iterator[ConfigIssue]:
    """Pods reach HTTPS in the stack's egressCidrs, and each other. Other URIs are checked by the trainer."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return
    if _is_loopback(parts.hostname):
        yield issue(
            "unreachable",
            path,
            f"{shown(uri)} is the pod itself, which runs no tracking server",
            "must be a host that pods reach",
            "name the server as other hosts do",
        )
        return
    try:
        port = parts.port or (_HTTPS if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if any(first <= port <= last for first, last in RUN_PORTS):
        return
    if port != _HTTPS or not _may_be_in(parts.hostname, platform.egress_cidrs):
        yield issue(
            "unreachable",
            path,
            f"{shown(uri)} is blocked by the network policies of team namespaces",
            f"must be on port {_HTTPS} in egressCidrs of the stack "
            f"({', '.join(platform.egress_cidrs) or 'none defined'})",
            "use such a server, or add its address to egressCidrs",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _may_be_in(host: str, cidrs: tuple[str, ...]) -> bool:
    """Whether a host can be in one of the blocks; the address of a name is not known here."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(cidrs)
    return any(address in ipaddress.ip_network(cidr) for cidr in cidrs)
