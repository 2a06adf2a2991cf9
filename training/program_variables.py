"""Environment variables that a program must not set, and placeholders that it may use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown
from training.run_schema import ProgramSection
from trainyard.contract import PLACEHOLDERS
from trainyard.placeholders import placeholders_in

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_NETWORK_KEYS: Final[Mapping[str, str]] = {
    "NCCL_DEBUG": "debug",
    "NCCL_DEBUG_SUBSYS": "subsystems",
    "NCCL_BUFFSIZE": "bufferBytes",
    "NCCL_NTHREADS": "threads",
    "NCCL_ALGO": "algorithms",
    "NCCL_SOCKET_IFNAME": "interface",
    "GLOO_SOCKET_IFNAME": "interface",
    "TORCH_DISTRIBUTED_DEBUG": "distributedDebug",
}
"""Variables with a key of `network`."""

_OF_PLATFORM: Final = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX", "HOSTNAME", "HOME"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "LD_PRELOAD", "LD_AUDIT"),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    }
)
_PREFIXES_OF_PLATFORM: Final = (
    "TRAINYARD_",
    "PET_",
    "TORCHELASTIC_",
    "TORCH_ELASTIC_",
    "OMPI_",
    "PMIX_",
    "PRTE_",
    "KUBERNETES_",
)
_PREFIXES_OF_POOL: Final = ("NCCL_IB_", "NCCL_NET", "NCCL_SOCKET_", "FI_", "OFI_NCCL_", "RDMAV_")
"""Decided by the pool's network (infra/domain/fabric.py)."""
_PREFIXES_OF_ACCELERATE: Final = (
    *(
        "ACCELERATE_USE_",
        "ACCELERATE_MIXED_PRECISION",
        "ACCELERATE_DYNAMO_",
        "ACCELERATE_DEEPSPEED_",
    ),
    "FSDP_",
)
"""`accelerate launch` sets them in every rank, from its configuration and defaults."""


def check(section: ProgramSection) -> Iterator[ConfigIssue]:
    """Check the names of variables, and the placeholders of command and variables."""
    for name in section.env:
        if issue := _reserved(name, section.launcher):
            yield issue
    for index, word in enumerate(section.command):
        yield from _unknown(f"program.command[{index}]", word, section)
    for name, value in section.env.items():
        yield from _unknown(f"program.env.{name}", value, section)


def _reserved(name: str, launcher: str) -> ConfigIssue | None:
    path = f"program.env.{name}"
    if not _NAME.fullmatch(name):
        return issue(
            "invalid-variable",
            path,
            f"{shown(name)} is not the name of a variable",
            "must be letters, digits and underscores, not starting with a digit",
            "rename it",
        )
    if key := _NETWORK_KEYS.get(name):
        return issue(
            "network-variable",
            path,
            "is a network setting",
            f"must be set by network.{key}",
            f"move it to network.{key}",
        )
    if name.startswith(_PREFIXES_OF_POOL):
        return issue(
            "network-variable",
            path,
            "follows from the network of the node pool",
            "must not be set by a run",
            "remove it",
        )
    if name in _OF_PLATFORM or name.startswith(_PREFIXES_OF_PLATFORM):
        return issue(
            "reserved-variable",
            path,
            "is set by the platform",
            "must not be set by a run",
            "remove it",
        )
    if launcher == "accelerate" and name.startswith(_PREFIXES_OF_ACCELERATE):
        return issue(
            "reserved-variable",
            path,
            "is set by accelerate launch",
            "must be a key of the file that program.accelerate names",
            "move it there",
        )
    return None


def _unknown(path: str, text: str, section: ProgramSection) -> Iterator[ConfigIssue]:
    for name in placeholders_in([text]):
        if name not in PLACEHOLDERS:
            yield issue(
                "unknown-placeholder",
                path,
                f"{{{name}}} is not a placeholder",
                f"must be one of {one_of(PLACEHOLDERS)}",
                did_you_mean(name, PLACEHOLDERS, f"write {{{{{name}}}}} for the text itself"),
            )
        elif absent := _absent(name, section):
            yield issue(
                "empty-placeholder",
                path,
                f"{{{name}}} is empty without program.{absent}",
                f"requires program.{absent}",
                "set it, or remove the placeholder",
            )


def _absent(name: str, section: ProgramSection) -> str:
    """Return the key that a placeholder needs and the program does not have."""
    needs = {
        "source": ("source", section.source),
        "deepspeed_config": ("deepspeed", section.deepspeed),
        "tracking_uri": ("trackingUri", section.tracking_uri),
    }
    key, value = needs.get(name, ("", "given"))
    return "" if value else key
