"""Objects that all pods of an agent share."""

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
"""Retry interval when the API server is unavailable or a volume is not ready."""


@dataclass(frozen=True)
class AgentContext:
    """Shared by all pod workers of an agent."""

    client: Client
    state: paths.State
    events: Events
    exits: Exits
    addresses: Addresses
    hosts: HostTable
    allocatable: dict[str, dict[str, str]] = field(default_factory=dict)
    """Node name -> allocatable resources."""
