"""Random initial weights, drawn per shard and equal for every layout.

While the model is built on the meta device, the operations that fill its parameters are recorded.
Later each rank repeats them for the rows that it holds, in blocks of rows with one generator each,
seeded by run, name and block. So a rank holds its part and one block at most, and every world size
gets the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.config_errors import ConfigError
from trainyard.tensors.layout import Box, whole_box
from trainyard.tensors.local_tensors import local_tensor

_BLOCK_NUMBERS: Final = 1 << 18
"""Numbers per block; at least one row of the tensor."""

_INIT_OPS: Final[Mapping[str, str]] = {
    "aten::normal_": "normal_",
    "aten::uniform_": "uniform_",
    "aten::fill_.Scalar": "fill_",
    "aten::zero_": "zero_",
}


@dataclass(frozen=True)
class InitOp:
    """One operation that fills a parameter, or one of its rows."""

    method: str
    """Method of torch.Tensor."""
    arguments: tuple[float, ...]
    row: int | None = None
    """The only row that is filled; None for all rows."""


class InitRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records how parameters on the meta device are filled."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ops: dict[int, list[InitOp | str]] = {}
        self._alive: list[torch.Tensor] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch loads its compiler to keep it from this class

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        target = args[0] if args else None
        if isinstance(target, torch.Tensor) and target.is_meta and func._schema.is_mutable:
            known = self._note(func, target, args[1:])
            if known:  # on meta there is nothing to fill, and doing so loads torch's compiler
                return target
        return func(*args, **(kwargs or {}))

    def _note(self, func: Any, target: torch.Tensor, arguments: tuple[Any, ...]) -> bool:
        """Record an operation; return whether it only fills."""
        whole = target if target._base is None else target._base
        name = func._schema.name
        overloaded = f"{name}.{func._schema.overload_name}"
        method = _INIT_OPS.get(name) or _INIT_OPS.get(overloaded)
        draws = self._ops.setdefault(id(whole), [])
        self._alive.append(whole)
        if method is None:
            draws.append(name)
        elif target.shape == whole.shape:
            draws[:] = [InitOp(method, arguments)]
        elif target.shape == whole.shape[1:]:
            draws.append(InitOp(method, arguments, int(target.storage_offset() // whole.stride(0))))
        else:
            draws.append(name)
        return method is not None

    def ops_for(self, model: torch.nn.Module) -> dict[str, list[InitOp]]:
        """Return operations by parameter name. Raises ConfigError for any that cannot be drawn in parts."""
        found, issues = {}, []
        for name, parameter in model.named_parameters():
            draws = self._ops.get(id(parameter), ["nothing"])
            odd = [draw for draw in draws if isinstance(draw, str)]
            if odd:
                issues.append(
                    f"model: {name} is filled by {odd[0]}, which cannot be drawn in parts; "
                    "set model.weights: safetensors"
                )
            found[name] = [draw for draw in draws if isinstance(draw, InitOp)]
        if issues:
            raise ConfigError(issues[:1])
        return found


@torch.no_grad()
def initialize(model: torch.nn.Module, recipes: Mapping[str, list[InitOp]], seed: int) -> None:
    for name, parameter in model.named_parameters():
        part = local_tensor(parameter)
        _draw(part.local, part.share.box, parameter.shape, name, recipes[name], seed)


def _draw(
    part: torch.Tensor,
    box: Box,
    shape: torch.Size,
    name: str,
    draws: list[InitOp],
    seed: int,
) -> None:
    first, *_ = (*box.offset, 0)
    rows, *_ = (*box.shape, 1)
    whole_rows, *rest = (*shape, *([1] * (1 - len(shape))))
    per_block = max(1, _BLOCK_NUMBERS // max(1, torch.Size(rest).numel()))
    columns = box.slices_in(whole_box(tuple(shape)))[1:]
    for block in range(first // per_block, -(-(first + rows) // per_block)):
        begin, end = block * per_block, min((block + 1) * per_block, whole_rows)
        numbers = torch.empty((end - begin, *rest))
        generator = torch.Generator().manual_seed(_seed(seed, name, block))
        for draw in draws:
            _fill(numbers, draw, begin, generator)
        here, there = max(begin, first), min(end, first + rows)
        part.view(rows, *box.shape[1:])[here - first : there - first].copy_(
            numbers[(slice(here - begin, there - begin), *columns)]
        )


def _fill(numbers: torch.Tensor, draw: InitOp, first: int, generator: torch.Generator) -> None:
    """Apply one operation to a block that begins at row `first` of the whole tensor."""
    target = numbers
    if draw.row is not None:
        if not first <= draw.row < first + len(numbers):
            return
        target = numbers[draw.row - first]
    random = {"generator": generator} if draw.method in ("normal_", "uniform_") else {}
    getattr(target, draw.method)(*draw.arguments, **random)


def _seed(seed: int, name: str, block: int) -> int:
    digest = hashlib.sha256(f"{seed}/{name}/{block}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
