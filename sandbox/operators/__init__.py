"""Controllers of the job kinds `trainjob`, `pytorchjob` and `mpijob`, which a sandbox runs on request.

`setup.py` holds their command lines, files and objects; `isolated.py` runs those that would listen on every
interface. They are built at first use, see `toolchain.ON_DEMAND_TOOLS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from infra.config import ConfigError, stack_values
from sandbox import paths, toolchain
from sandbox.toolchain import Toolchain


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One controller: `service` is its process, `tool` its recipe in the toolchain."""

    service: str
    tool: str


OPERATORS: Final[Mapping[str, Operator]] = {
    "kubeflowTrainer": Operator(service="kubeflow-trainer", tool="kubeflow-trainer"),
    "trainingOperator": Operator(service="training-operator", tool="training-operator"),
    "mpiOperator": Operator(service="mpi-operator", tool="mpi-operator"),
}
"""By key in the stack file's `operators`."""


def local_operators(stack_file: Path = paths.PROJECT / "Pulumi.local.yaml") -> tuple[str, ...]:
    """Return the operators that the local stack expects in the cluster; none if its file is missing or invalid.

    An invalid file is reported by the deployment, which follows.
    """
    try:
        found = stack_values(stack_file).get("operators")
    except (ConfigError, OSError):
        return ()
    present = found if isinstance(found, dict) else {}
    return tuple(name for name in OPERATORS if present.get(name) is not None)


def runs_queueing(stack_file: Path = paths.PROJECT / "Pulumi.local.yaml") -> bool:
    """Whether the local stack expects Kueue in the cluster, and does not install it."""
    try:
        kueue = stack_values(stack_file)["operators"]["kueue"]
        return kueue["provided"] is not False
    except (ConfigError, OSError, LookupError, TypeError):
        return False


def with_operators(tools: Toolchain, console: Console, operators: Collection[str]) -> Toolchain:
    """Return the tools and those of these operators; build what is missing.

    Raises:
        ToolchainError: a build is not possible or failed.
    """
    if not operators:
        return tools
    more = toolchain.ensure(console, *(OPERATORS[name].tool for name in operators))
    return Toolchain(
        binaries=tools.binaries | more.binaries,
        assets=tools.assets | more.assets,
        sources=tools.sources | more.sources,
    )
