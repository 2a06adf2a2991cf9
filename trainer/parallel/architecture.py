"""The model on the meta device: shapes and names, no memory for parameters.

`model.*` settings describe a Llama of our own (llama.py). For a folder, only transformers' modules of its
architecture are imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from trainer.config.settings import CONFIG_FILE, ModelConfig
from trainer.config_errors import ConfigError, config_error
from trainer.parallel.llama import Llama, LlamaBlock, LlamaSettings


def model_settings(config: ModelConfig, sequence_length: int) -> Any:
    """Return LlamaSettings, or the transformers configuration of a folder's config.json. Raises ConfigError."""
    if not config.path:
        return LlamaSettings(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            tie_word_embeddings=config.tie_embeddings,
            initializer_range=config.initializer_range,
            max_position_embeddings=sequence_length,
        )
    network, values = _class_and_values(config)
    try:
        settings = network.config_class.from_dict(values)
    except Exception as error:  # of a library
        raise invalid_file(config, error) from None
    settings.use_cache = False
    settings.dtype = torch.float32
    if network._supports_sdpa:
        settings._attn_implementation = "sdpa"
    longest = getattr(settings, "max_position_embeddings", None)
    if longest is not None and 0 < longest < sequence_length:
        raise config_error(
            "data.sequence_length",
            f"{sequence_length} is too long",
            f"must be at most {longest}, the positions of {config.path}",
            "lower it",
            "out-of-range",
        )
    return settings


def build_on_meta(settings: Any) -> torch.nn.Module:
    """Return the model with parameters on the meta device and real buffers."""
    with _parameters_on_meta():
        if isinstance(settings, LlamaSettings):
            return Llama(settings)
        network = _model_class(settings.model_type, settings.architectures[0])
        model: torch.nn.Module = network(settings)
    return model


def decoder_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the repeated blocks in order: the unit of sharding, recomputation and compilation."""
    names = {LlamaBlock.__name__, *(getattr(model, "_no_split_modules", None) or ())}
    return [module for module in model.modules() if type(module).__name__ in names]


def _class_and_values(config: ModelConfig) -> tuple[Any, dict[str, Any]]:
    """Return the class of a folder's model and the content of its config.json."""
    file = Path(config.path) / CONFIG_FILE
    try:
        values = json.loads(file.read_text(encoding="utf-8"), object_hook=_float)
        kind, name = str(values["model_type"]), str(values["architectures"][0])
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise invalid_file(config, error) from None
    if values.get("quantization_config"):
        raise config_error(
            f"model.path: {file}",
            "the weights are quantised (quantization_config)",
            "must be a model in float32, bfloat16 or float16",
            "convert it with from_pretrained(..., dequantize) and save_pretrained",
            "quantised-model",
        )
    try:
        return _model_class(kind, name), values
    except (ImportError, AttributeError):
        raise config_error(
            f"model.path: {file}",
            f"names {name} of model type {kind}",
            "must be a causal language model of the installed transformers",
            "choose another model",
            "unknown-model",
        ) from None


def _model_class(kind: str, name: str) -> Any:
    """Return a model's class. Raises ImportError, AttributeError."""
    import transformers

    found = getattr(transformers, name)
    if found.config_class.model_type != kind:
        raise AttributeError(name)
    return found


def _float(values: dict[str, Any]) -> Any:
    """Return what transformers writes for an infinite number or NaN as that number."""
    return float(values["__float__"]) if list(values) == ["__float__"] else values


def invalid_file(config: ModelConfig, error: Exception) -> ConfigError:
    """Return the error for a config.json from which a library cannot build a model."""
    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return config_error(
        f"model.path: {Path(config.path) / CONFIG_FILE}",
        " ".join(str(reason).split()),
        f"must be a folder whose {CONFIG_FILE} has model_type and architectures",
        "correct the path or the file",
        "invalid-file",
    )


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Move new parameters to the meta device as soon as they are registered.

    Not `torch.device("meta")`: buffers such as rotary frequencies must hold real values.
    """

    def move(_: object, __: str, parameter: torch.nn.Parameter | None) -> Any:
        if parameter is None or parameter.is_meta:
            return None
        return torch.nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)

    handle = register_module_parameter_registration_hook(move)
    try:
        yield
    finally:
        handle.remove()
