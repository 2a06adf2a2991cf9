"""Compare facts of ranks with each other and with the pool's specification, and report a check's result.

The result is a line of JSON, the last of the pod's log, and an exit code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Facts that nodes must have; in JSON an object with any of these keys."""

    models: tuple[str, ...] = ()
    """Allowed GPU models as in the label gpu.model, such as a100; empty allows any."""
    mtu: int | None = None
    """MTU in bytes of the interface that collectives use."""
    zone: str = ""
    fabric_devices: int | None = None
    """Minimum number of EFA or RDMA devices in a pod."""
    transport: str = ""
    """Network that collectives between nodes must use, as transport.transport_of names it: `efa`."""
    gbps: float | None = None
    """Minimum bus bandwidth of the collective check in GB/s (10^9 bytes)."""

    @classmethod
    def from_json(cls, text: str) -> Expected:
        """Parse JSON. Raises ValueError for unknown keys and malformed text."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(values.keys() - known):
            raise ValueError(f"unknown {', '.join(unknown)}")
        return cls(**values | {"models": tuple(values.get("models", ()))})


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
    for fact, is_wrong, cause, remedy in _checks(ranks, expected):
        if wrong := [one for one in ranks if is_wrong(one)]:
            yield Finding(cause=cause.format(format_by_value(wrong, fact)), remedy=remedy)


_Check = tuple[str, Callable[[Facts], bool], str, str]
"""Fact, whether that of a rank is wrong, cause with a place for the values, and remedy."""


def _checks(ranks: Sequence[Facts], expected: Expected) -> Iterator[_Check]:
    """Yield what is compared, the most likely root cause first."""
    yield (
        "unmatched_setting",
        lambda one: "unmatched_setting" in one,
        "no interface matches {}",
        "remove the setting: collectives then take the pod's own interface",
    )
    sizes = {one["mtu"] for one in ranks} - {None}
    if expected.mtu is not None and sizes - {expected.mtu}:
        cause = f"MTU is {{}}; the pool's network has {expected.mtu}"
        yield "mtu", lambda one: one["mtu"] is not None, cause, _NETWORK_REMEDY
    elif len(sizes) > 1:
        yield "mtu", lambda one: one["mtu"] is not None, "MTU differs: {}", _NETWORK_REMEDY
    if expected.zone:
        yield (
            "zone",
            lambda one: one["zone"] not in ("", expected.zone),
            f"zone is {{}}; the pool is in {expected.zone}",
            "correct the pool's zone in the stack file, or move its nodes",
        )
    for name, (what, remedy) in _ALIKE.items():
        if len({one[name] for one in ranks}) > 1:
            yield name, lambda _: True, f"different {what}: {{}}", remedy
    if expected.models:
        yield (
            "model",
            lambda one: one["device"] == "cuda" and not _is_one_of(one, expected.models),
            f"GPU model is {{}}; the pool has {', '.join(expected.models)}",
            "correct the pool's instanceTypes in the stack file, or replace the nodes",
        )
    if devices := expected.fabric_devices:
        yield (
            "fabric_devices",
            lambda one: one["fabric_devices"] < devices,
            f"fabric devices: {{}}; a node of the pool has {devices}",
            "check the device plugin of the fabric (EFA, RDMA), and the nodes' drivers",
        )
        yield (
            "memlock",
            lambda one: isinstance(one["memlock"], int) and one["memlock"] < MEMLOCK_MIN,
            f"the limit of locked memory is {{}} (bytes); EFA and RDMA register more than {MEMLOCK_MIN}",
            "raise RLIMIT_MEMLOCK in containerd's base runtime spec of the nodes; a capability of the "
            "pod does not help",
        )


def _is_one_of(rank: Facts, models: Sequence[str]) -> bool:
    """Return whether a device name such as `NVIDIA A100-SXM4-80GB` has all words of a model: a100-80gb."""
    words = _words(str(rank["model"]))
    return any(_words(model) <= words for model in models)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


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
    if len({one["zone"] for one in ranks} - {""}) > 1:
        return [
            f"ranks are in several zones, which slows collectives: {format_by_value(ranks, 'zone')}"
        ]
    return []


TERMINATION_LOG: Final = Path("/dev/termination-log")
"""Copied by the kubelet to the pod's status, for users who may read pods but not logs."""
_TERMINATION_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Cause of a failed check and its remedy; one line each."""

    cause: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one check as one pod sees it."""

    validation: str
    """Which check: smoke, collective, train-single, train-multi, queueing-low, queueing-high."""
    finding: Finding | None = None
    """None if it passed."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.finding is None

    def line(self) -> str:
        """Return one line of JSON: validation, ok, cause, remedy, then the facts."""
        said = {
            "validation": self.validation,
            "ok": self.ok,
            "cause": self.finding.cause if self.finding else "",
            "remedy": self.finding.remedy if self.finding else "",
        }
        return json.dumps({**said, **self.facts})


def report_verdict(verdict: Verdict, termination_log: Path = TERMINATION_LOG) -> int:
    """Print the verdict and copy it to the termination log; return the exit code, 0 or 1."""
    line = verdict.line()
    print(line, flush=True)
    sys.stderr.flush()
    # Missing outside of Kubernetes; the log has the line anyway.
    with contextlib.suppress(OSError):
        if termination_log.exists():
            termination_log.write_text(line[:_TERMINATION_BYTES])
    return 0 if verdict.ok else 1
