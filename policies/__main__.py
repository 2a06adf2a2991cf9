"""Entry point of the policy pack, which the engine runs in the pack's own Python environment."""

from __future__ import annotations

from adapter import policy
from pulumi_policy import PolicyPack
from rules.catalog import RULES

PolicyPack(name="trainyard", policies=[policy(rule) for rule in RULES])
