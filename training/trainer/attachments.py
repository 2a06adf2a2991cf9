"""Small files that make a checkpoint readable without this program: model and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

CONFIG_FILE: Final = "config.json"
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def attachments(model: torch.nn.Module, folders: Sequence[Path]) -> dict[str, bytes]:
    """By name: the model's configuration as transformers reads it, and the tokenizer's files.

    Each of the latter is taken from the first of `folders` that has it; bytes need none.
    """
    found: dict[str, bytes] = {}
    config: Any = getattr(model, "config", None)
    if hasattr(config, "to_dict"):
        found[CONFIG_FILE] = _config_json(model, config.to_dict())
    for name in TOKENIZER_FILES:
        files = [folder / name for folder in folders if (folder / name).is_file()]
        if files:
            found[name] = files[0].read_bytes()
    return found


def _config_json(model: torch.nn.Module, values: dict[str, Any]) -> bytes:
    if not values.get("architectures"):
        # fully_shard puts its own prefix before the name of the class.
        values["architectures"] = [type(model).__name__.removeprefix("FSDP")]
    return (json.dumps(values, indent=2, sort_keys=True, default=str) + "\n").encode()
