"""Compare facts of ranks with each other and with the pool's specification."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from trainer.validation.expected import Expected
from trainer.validation.verdict import Finding

Facts = Mapping[str, Any]

_ALIKE: Final[Mapping[str, tuple[str, str]]] = {
    "device": (
        "kinds of devices",
        "look why some pods see no GPU: device plugin, driver, container runtime",
    ),
    "model": (
        "GPU models",
        "use instance types with one GPU model, or set gpuModel in the run file",
    ),
    "driver": ("drivers", "bring all nodes of the pool to one image (AMI) version"),
    "cuda": ("CUDA versions", "use one image, by digest, in all pods"),
    "nccl": ("NCCL versions", "use one image, by digest, in all pods"),
}
"""Facts that must be equal on all ranks: display name and remedy."""

MEMLOCK_MIN: Final = 1 << 30
"""Bytes that a rank must be able to lock on an RDMA network: NCCL registers hundreds of MiB of buffers, and
containerd's default is 8 MiB."""
_NETWORK_REMEDY: Final = (
    "compare the MTU of the nodes' interfaces and of what is between them: subnets, jumbo frames, "
    "CNI"
)


def first_finding(ranks: Sequence[Facts], expected: Expected) -> Finding | None:
    """Return the most likely root cause, or None if the facts are consistent."""
    return next(_findings(ranks, expected), None)


def _findings(ranks: Sequence[Facts], expected: Expected) -> Iterator[Finding]:
    yield from _interface(ranks)
    yield from _mtu(ranks, expected.mtu)
    yield from _zone(ranks, expected.zone)
    for name, (what, remedy) in _ALIKE.items():
        if len(_values(ranks, name)) > 1:
            yield Finding(cause=f"different {what}: {format_by_value(ranks, name)}", remedy=remedy)
    yield from _models(ranks, expected.models)
    yield from _fabric(ranks, expected.fabric_devices)
    yield from _locked_memory(ranks, expected.fabric_devices)


def transport_finding(ranks: Sequence[Facts], expected: str) -> Finding | None:
    """Return a finding if a rank's collectives used another network than expected; empty expects none."""
    if not expected or all(one["transport"] == expected for one in ranks):
        return None
    shown = [{**one, "transport": one["transport"] or "not named in NCCL's log"} for one in ranks]
    return Finding(
        cause=f"transport is {format_by_value(shown, 'transport')}; the pool's network is {expected}",
        remedy="read NCCL's lines in the pods' logs: the plugin or libfabric is missing in the image, the pod "
        "has no adapter, or the security group does not allow all traffic within itself",
    )


def format_by_value(ranks: Sequence[Facts], name: str) -> str:
    """Return `VALUE on NODE, NODE; VALUE on NODE`."""
    nodes: dict[str, list[str]] = {}
    for one in ranks:
        at = nodes.setdefault(str(one[name]), [])
        if one["node"] not in at:
            at.append(str(one["node"]))
    return "; ".join(f"{value} on {', '.join(at)}" for value, at in nodes.items())


def cross_zone_notes(ranks: Sequence[Facts]) -> list[str]:
    """Return notes on ranks in several zones: no failure, but slower collectives."""
    if len(_values(ranks, "zone") - {""}) > 1:
        return [
            f"ranks are in several zones, which slows collectives: {format_by_value(ranks, 'zone')}"
        ]
    return []


def _values(ranks: Sequence[Facts], name: str) -> set[Any]:
    return {one[name] for one in ranks}


def _interface(ranks: Sequence[Facts]) -> Iterator[Finding]:
    without = [one for one in ranks if "unmatched_setting" in one]
    if without:
        yield Finding(
            cause=f"no interface matches {format_by_value(without, 'unmatched_setting')}",
            remedy="remove the setting: collectives then take the pod's own interface",
        )


def _mtu(ranks: Sequence[Facts], expected: int | None) -> Iterator[Finding]:
    known = [one for one in ranks if one["mtu"] is not None]
    if expected is not None and any(one["mtu"] != expected for one in known):
        yield Finding(
            cause=f"MTU is {format_by_value(known, 'mtu')}; the pool's network has {expected}",
            remedy=_NETWORK_REMEDY,
        )
    elif len(_values(known, "mtu")) > 1:
        yield Finding(cause=f"MTU differs: {format_by_value(known, 'mtu')}", remedy=_NETWORK_REMEDY)


def _zone(ranks: Sequence[Facts], expected: str) -> Iterator[Finding]:
    elsewhere = [one for one in ranks if one["zone"] not in ("", expected)] if expected else []
    if elsewhere:
        yield Finding(
            cause=f"zone is {format_by_value(elsewhere, 'zone')}; the pool is in {expected}",
            remedy="correct the pool's zone in the stack file, or move its nodes",
        )


def _models(ranks: Sequence[Facts], expected: Sequence[str]) -> Iterator[Finding]:
    wrong = [one for one in ranks if one["device"] == "cuda" and not _is_one_of(one, expected)]
    if expected and wrong:
        yield Finding(
            cause=f"GPU model is {format_by_value(wrong, 'model')}; the pool has {', '.join(expected)}",
            remedy="correct the pool's instanceTypes in the stack file, or replace the nodes",
        )


def _is_one_of(rank: Facts, models: Sequence[str]) -> bool:
    """Return whether a device name such as `NVIDIA A100-SXM4-80GB` has all words of a model: a100-80gb."""
    return any(_words(model) <= _words(str(rank["model"])) for model in models)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _fabric(ranks: Sequence[Facts], expected: int | None) -> Iterator[Finding]:
    short = [one for one in ranks if one["fabric_devices"] < (expected or 0)]
    if short:
        yield Finding(
            cause=(
                f"fabric devices: {format_by_value(short, 'fabric_devices')}; a node of the pool has "
                f"{expected}"
            ),
            remedy="check the device plugin of the fabric (EFA, RDMA), and the nodes' drivers",
        )


def _locked_memory(ranks: Sequence[Facts], expected: int | None) -> Iterator[Finding]:
    """Require lockable memory where the pool has an RDMA network."""
    low = [
        one
        for one in ranks
        if isinstance(one["memlock"], int) and expected and one["memlock"] < MEMLOCK_MIN
    ]
    if low:
        yield Finding(
            cause=f"the limit of locked memory is {format_by_value(low, 'memlock')} (bytes); EFA and RDMA "
            f"register more than {MEMLOCK_MIN}",
            remedy="raise RLIMIT_MEMLOCK in containerd's base runtime spec of the nodes; a capability of the "
            "pod does not help",
        )
