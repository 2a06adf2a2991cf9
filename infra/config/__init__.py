"""StackConfig: a stack file read once, checked whole. The only reader of pulumi.Config."""

from infra.config.loading import from_engine, from_file, parse, read_yaml
from infra.config.mistakes import ConfigError, Mistake
from infra.config.model import StackConfig

__all__ = [
    "ConfigError",
    "Mistake",
    "StackConfig",
    "from_engine",
    "from_file",
    "parse",
    "read_yaml",
]
