"""What all pods of an agent use."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox import paths
from sandbox.node.addresses import Addresses
from sandbox.node.api import Client
from sandbox.node.events import Events
from sandbox.node.host_table import HostTable
from sandbox.node.runtime import Exits

HOST_IP = "127.0.0.1"
RETRY_S = 2.0
"""Between tries when the API server is away or a volume is not ready."""


@dataclass(frozen=True)
class AgentContext:
    """What all workers use."""

    client: Client
    state: paths.State
    events: Events
    exits: Exits
    addresses: Addresses
    hosts: HostTable
    allocatable: dict[str, dict[str, str]] = field(default_factory=dict)
    """Node name -> allocatable resources."""
