"""Initial weights from safetensors files; each rank reads only its shards.

transformers stores some models in another form than it computes with, such as a tensor per expert. Its own rules
convert them; then a rank reads all that its tensor is made from (of experts in a list, only its own).
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from trainer.config_errors import ConfigError, config_error
from trainyard.tensors.layout import whole_box
from trainyard.tensors.local_tensors import local_data, local_tensor

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of stored weights; others are quantised."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Tensors of the whole model, and how stored ones become them."""

    shapes: Mapping[str, torch.Size]
    """By name; tensors that are tied have several."""
    tied: Mapping[str, str]
    """First name of each tied tensor, by its names."""
    parameters: frozenset[str]
    """The others are buffers, which a folder may lack."""
    prefix: str
    renamings: list[Any]
    converters: list[Any]
    """transformers' WeightRenaming and WeightConverter."""
    ignored: tuple[str, ...]
    """Patterns of stored tensors that the architecture itself does not read."""


@dataclass(kw_only=True)
class _Source:
    """The stored tensors that become one or several of the model's."""

    converter: Any = None
    """None: the tensor itself."""
    keys: dict[str, list[str]] = field(default_factory=dict)
    """Names in the files by pattern of the converter, in the order of experts."""

    def targets(self, first: str) -> list[str]:
        """Return the names in the model, of which `first` is the first."""
        if self.converter is None:
            return [first]
        patterns = self.converter.target_patterns
        return [first.replace(patterns[0], pattern) for pattern in patterns]


def expected_tensors(model: Any) -> Expected:
    """Describe the tensors of a whole model of transformers, before it is divided."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter

    rules = get_model_conversion_mapping(model)
    tensors = model.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    return Expected(
        shapes={name: tensor.shape for name, tensor in tensors.items()},
        tied={name: first.setdefault(id(tensor), name) for name, tensor in tensors.items()},
        parameters=frozenset(name for name, _ in model.named_parameters(remove_duplicate=False)),
        prefix=model.base_model_prefix,
        renamings=[rule for rule in rules if not isinstance(rule, WeightConverter)],
        converters=[rule for rule in rules if isinstance(rule, WeightConverter)],
        ignored=tuple(model._keys_to_ignore_on_load_unexpected or ()),
    )


@torch.no_grad()
def load_pretrained(
    model: torch.nn.Module, expected: Expected, folder: Path, ignore: Iterable[str] = ()
) -> list[str]:
    """Fill this rank's part of every parameter and stored buffer; return stored tensors that were not read.

    `ignore`: glob patterns of tensors that need not be read. Raises ConfigError for weights that do not fit or are
    not finite.
    """
    stored = _files(folder)
    sources, unread = _assign(expected, stored)
    allowed = [key for key in unread if _is_ignored(key, expected, ignore)]
    issues = list(_name_issues(folder, expected, sources, set(unread) - set(allowed)))
    if not issues:
        with ExitStack() as stack:
            reader = _Reader(
                model=model, expected=expected, folder=folder, stored=stored, stack=stack
            )
            issues = [
                one for first, source in sources.items() for one in reader.read(first, source)
            ]
        issues = [_counted(issues)] if issues else []
    if issues:
        raise ConfigError(issues)
    return allowed


def _files(folder: Path) -> Mapping[str, str]:
    try:
        if (folder / _INDEX).exists():
            index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
            return {str(name): str(file) for name, file in index["weight_map"].items()}
        with safe_open(folder / _SINGLE, framework="pt") as stored:
            return dict.fromkeys(stored.keys(), _SINGLE)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, SafetensorError) as error:
        raise config_error(
            f"model.weights: {folder}",
            " ".join(str(error).split()),
            f"must be a folder with {_SINGLE} or {_INDEX}",
            "correct model.path",
            "invalid-file",
        ) from None


def _assign(expected: Expected, stored: Iterable[str]) -> tuple[dict[str, _Source], list[str]]:
    """Return the sources by their first tensor in the model, and the stored tensors that belong to none."""
    from transformers.core_model_loading import dot_natural_key, rename_source_key

    by_pattern = {
        pattern: converter
        for converter in expected.converters
        for pattern in converter.source_patterns
    }
    sources: dict[str, _Source] = {}
    unread: list[str] = []
    for key in sorted(stored, key=dot_natural_key):
        first, pattern = rename_source_key(
            key, expected.renamings, expected.converters, expected.prefix, expected.shapes
        )
        if first not in expected.shapes:  # our own exports have the names of the model
            first, pattern = rename_source_key(key, [], [], expected.prefix, expected.shapes)
        source = sources.get(first)
        if first not in expected.shapes or (source and not (pattern and source.converter)):
            unread.append(key)
            continue
        if source is None:
            source = sources[first] = _Source(converter=by_pattern[pattern] if pattern else None)
        source.keys.setdefault(pattern or key, []).append(key)
    return sources, unread


def _is_ignored(key: str, expected: Expected, ignore: Iterable[str]) -> bool:
    declared = any(re.search(pattern, key) for pattern in expected.ignored)
    return declared or any(fnmatch.fnmatchcase(key, pattern) for pattern in ignore)


def _name_issues(
    folder: Path, expected: Expected, sources: Mapping[str, _Source], unread: Iterable[str]
) -> Iterator[str]:
    found = {name for first, source in sources.items() for name in source.targets(first)}
    found = {expected.tied[name] for name in found if name in expected.tied}
    missing = [
        f"model.weights: {folder}: holds no {name}"
        for name in expected.shapes
        if name in expected.parameters and expected.tied[name] not in found
    ]
    if missing:
        yield _counted(missing)
    if others := [
        f"model.weights: {folder}: {name} is not a tensor of the model" for name in sorted(unread)
    ]:
        yield _counted(others, "correct model.path, or list it in model.ignore_tensors")


def _counted(issues: list[str], action: str = "correct it") -> str:
    more = f" (and {len(issues) - 1} more)" if len(issues) > 1 else ""
    return f"{issues[0]}{more}; must be the weights of this model; {action}"


@dataclass(kw_only=True)
class _Reader:
    """Reads this rank's part of the model's tensors."""

    model: Any
    expected: Expected
    folder: Path
    stored: Mapping[str, str]
    stack: ExitStack
    _open: dict[str, Any] = field(default_factory=dict)
    _own: dict[str, torch.Tensor] = field(init=False)
    _filled: dict[str, str] = field(default_factory=dict)
    """Name under which a tensor was read, by its first name."""

    def __post_init__(self) -> None:
        self._own = self.model.state_dict()

    def read(self, first: str, source: _Source) -> Iterator[str]:
        """Fill the tensors that a source becomes; yield what is wrong."""
        try:
            if source.converter is not None:
                yield from self._convert(first, source)
            elif first in self._own:  # else of another stage of a pipeline
                ((key,),) = source.keys.values()
                part = self._part(key, floats=self._own[first].is_floating_point())
                shape = part.get_shape()
                take = part.__getitem__ if shape else lambda _: self._file(key).get_tensor(key)
                yield from self._fill(first, self._where(key), shape, take)
        except _Misfit as error:
            yield str(error)
        except (OSError, SafetensorError, ValueError, RuntimeError, KeyError, IndexError) as error:
            where = self._where(next(iter(source.keys.values()))[0])
            yield f"model.weights: {where}: {' '.join(str(error).split())}"

    def _convert(self, first: str, source: _Source) -> Iterator[str]:
        own = self._own.get(first)
        experts = slice(None)
        if in_rows := own is not None and _keeps_rows(source.converter):
            assert own is not None
            box, count = local_tensor(own).share.box, own.shape[0]
            experts = slice(box.offset[0], box.offset[0] + box.shape[0])
            for pattern, keys in source.keys.items():
                if len(keys) != count:
                    where = self._where(keys[0])
                    raise _Misfit(f"{where}: {len(keys)} of {count} tensors {pattern} are there")
            if 0 in box.shape:
                return
        converter = deepcopy(source.converter)
        for pattern, keys in source.keys.items():
            for key in keys[experts]:
                tensor = self._part(key, floats=True)[:]
                _require_finite(tensor, self._where(key))
                converter.add_tensor(first, key, pattern, tensor)
        where = f"{self._where(next(iter(source.keys.values()))[0])} and others"
        for name, made in converter.convert(
            first, model=self.model, config=self.model.config
        ).items():
            tensor = made[0] if isinstance(made, list) else made
            if in_rows:
                shape = [count, *tensor.shape[1:]]
                take = partial(_without_rows, tensor)
            else:
                shape, take = list(tensor.shape), tensor.__getitem__
            yield from self._fill(name, where, shape, take)

    def _fill(
        self, name: str, where: str, shape: list[int], take: Callable[[Any], torch.Tensor]
    ) -> Iterator[str]:
        """Copy this rank's region, which `take` returns."""
        own = self._own.get(name)
        if own is None:
            return
        if list(shape) != list(own.shape):
            yield f"model.weights: {where} has shape {list(shape)}, the model {list(own.shape)}"
            return
        described = local_tensor(own)
        local = described.local
        if not local.numel():
            return
        part = take(described.share.box.slices_in(whole_box(tuple(own.shape))))
        before = self._filled.setdefault(self.expected.tied[name], name)
        if before != name and not torch.equal(local_data(self._own[before]), part.to(local)):
            yield f"model.weights: {where} is not {before}, to which the model ties it"
            return
        local.copy_(part)
        if name in self.expected.parameters:
            _require_finite(local, where)
        elif local.isnan().any():
            raise _Misfit(f"{where} holds NaN")

    def _part(self, key: str, *, floats: bool) -> Any:
        """Return a stored tensor as a slice to take from."""
        part = self._file(key).get_slice(key)
        if floats != (part.get_dtype() in _FLOATS):
            raise _Misfit(f"{self._where(key)} has type {part.get_dtype()}, which is not trained")
        return part

    def _file(self, key: str) -> Any:
        name = self.stored[key]
        if name not in self._open:
            opened = safe_open(self.folder / name, framework="pt")
            self._open[name] = self.stack.enter_context(opened)
        return self._open[name]

    def _where(self, key: str) -> str:
        return f"{self.folder / self.stored[key]}: {key}"


class _Misfit(Exception):
    """A stored tensor cannot be used; begins with its file and name."""

    def __str__(self) -> str:
        return f"model.weights: {self.args[0]}"


def _keeps_rows(converter: Any) -> bool:
    """Return whether it stacks a list of tensors, and row i of the result is made from tensor i of each list."""
    from transformers.core_model_loading import Concatenate, MergeModulelist

    stack, *others = converter.operations
    return (
        isinstance(stack, MergeModulelist)
        and stack.dim == 0
        and len(converter.target_patterns) == 1
        and all(isinstance(one, Concatenate) and one.dim > 0 for one in others)
    )


def _without_rows(tensor: torch.Tensor, slices: tuple[slice, ...]) -> torch.Tensor:
    """Take a region of a tensor that has only the rows of the region."""
    return tensor[(slice(None), *slices[1:])]


def _require_finite(tensor: torch.Tensor, where: str) -> None:
    # NaN is the least and the greatest of values that have one; this takes no memory.
    if tensor.numel() and not all(end.isfinite() for end in torch.aminmax(tensor)):
        count = tensor.numel() - int(tensor.isfinite().sum())
        raise _Misfit(f"{where} holds {count} values that are NaN or infinite")
