"""StackConfig: a stack file read once, checked whole. The only reader of pulumi.Config."""

from infra.config.loader import engine_values, parse, stack_values
from infra.config.model import StackConfig
from infra.sections.errors import ConfigError, ConfigIssue

__all__ = [
    "ConfigError",
    "ConfigIssue",
    "StackConfig",
    "engine_values",
    "parse",
    "stack_values",
]
