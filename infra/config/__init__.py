"""StackConfig: a stack file read once, checked whole. The only reader of pulumi.Config."""

from infra.config.loading import engine_values, parse, read_yaml, stack_values
from infra.config.mistakes import ConfigError, Mistake
from infra.config.model import StackConfig

__all__ = [
    "ConfigError",
    "Mistake",
    "StackConfig",
    "engine_values",
    "parse",
    "read_yaml",
    "stack_values",
]
