"""What a rank imports before its first step beyond what all do: by its configuration."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from training.config_errors import ConfigError
from training.trainer.config import load
from training.trainer.config.model import CONFIG_FILE


def more_modules(arguments: Sequence[str]) -> list[str]:
    """Return the modules by the arguments of `python -m training.trainer`.

    None for arguments or a configuration that the ranks will refuse. They import what is missing here
    themselves.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[])
    try:
        options, _ = parser.parse_known_args(list(arguments))
        return list(_modules(options.config, options.set)) if options.config else []
    except (argparse.ArgumentError, ConfigError, OSError, ValueError, KeyError, TypeError):
        return []


def _modules(config_file: Path, assignments: Sequence[str]) -> Iterator[str]:
    config = load(config_file, assignments)
    parallel = config.parallel
    if config.groups.enabled:
        yield "training.trainer.elastic.start"
    if parallel.shard != 1 or parallel.tensor > 1 or parallel.pipeline > 1:
        yield "torch.distributed.fsdp"
        yield "torch._dynamo"
    if parallel.tensor > 1:
        yield "training.trainer.parallel.tensor_parallel"
    if parallel.pipeline > 1:
        yield "training.trainer.parallel.pipeline_passes"
    if config.blocks.compile or config.blocks.recompute:
        yield "torch._dynamo"
    if config.model.path:
        values = json.loads((Path(config.model.path) / CONFIG_FILE).read_text(encoding="utf-8"))
        kind = str(values["model_type"]).replace("-", "_")
        yield f"transformers.models.{kind}.modeling_{kind}"
