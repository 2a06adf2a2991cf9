"""What a stack file costs: its pools now, at maximum and idle, and its services."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.config import ConfigError, arguments, parse, stack_values
from infra.config.model import StackConfig
from infra.domain import catalog
from infra.domain.pools import NodePool
from infra.domain.prices.services import ResourcePrice, monthly
from ops.budgets import decision
from ops.budgets.decision import Budget
from ops.cluster import ClusterError

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class StackPrices:
    """The pools and services of a stack file."""

    name: str
    pools: tuple[NodePool, ...]
    services: Sequence[tuple[str, ResourcePrice]]
    """Priced resources by name; none outside AWS."""


def read(stack: str) -> StackPrices:
    """Read the file of a stack, and render its resources for their prices. Raises ClusterError for a bad one."""
    config = _config(stack)
    region = config.aws.region if config.aws else catalog.DEFAULT_REGION
    services = monthly(_rendered(stack), region) if config.on_aws else []
    return StackPrices(name=stack, pools=config.pools, services=services)


def team_budgets(stack: str) -> list[Budget]:
    """Return the teams of a stack that have a budget. Raises ClusterError for a bad file."""
    return decision.parse_budgets(arguments.budgets(_config(stack)))


def steering(stack: str) -> dict[str, Any]:
    """Return the pools and rules by which runs are steered. Raises ClusterError for a bad file or none."""
    config = _config(stack)
    if config.steering is None:
        raise ClusterError(f"stack {stack}: runs are not steered; add the section steering")
    return arguments.steering(config)


def _config(stack: str) -> StackConfig:
    file = ROOT / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        known = sorted(path.stem.removeprefix("Pulumi.") for path in ROOT.glob("Pulumi.*.yaml"))
        raise ClusterError(f"--stack: got {stack!r}; expected one of {', '.join(known)}")
    try:
        return parse(stack_values(file))
    except ConfigError as error:
        raise ClusterError(f"{file}: {error}") from None


def _rendered(stack: str) -> list[dict[str, object]]:
    """Return the resources that the program registers for a stack."""
    command = [sys.executable, "-m", "infra.render", stack]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"stack {stack}: cannot be rendered: {done.stderr.strip()[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line]
