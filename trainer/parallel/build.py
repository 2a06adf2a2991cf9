"""Build a rank's part of the model.

The order matters: tensor parallelism and pipeline stages are applied while the model is on meta;
then activation checkpointing and compilation; then FSDP2 per block, or DDP; then memory is allocated
for what this rank holds. Weights come last, and only without a checkpoint to load.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from trainer import eager
from trainer.config.rules import check_shape
from trainer.config.settings import TrainerConfig
from trainer.config_errors import ConfigError, issue
from trainer.parallel import initialization, pretrained
from trainer.parallel.architecture import (
    build_on_meta,
    decoder_blocks,
    invalid_file,
    model_settings,
)
from trainer.parallel.layout import ModelShape
from trainer.parallel.passes import FullModelPasses, Passes
from trainer.parallel.pipeline_stages import Stage, keep_stage
from trainer.parallel.world import World, limit_collectives, unwrap
from trainyard.tensors.local_tensors import is_sharded, local_data

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Network:
    module: torch.nn.Module
    """Its parameters are this rank's: plain tensors, or DTensors where they are sharded."""
    passes: Passes
    settings: Any
    """The configuration of the whole model: LlamaSettings, or one of transformers."""
    parameters: int
    """Parameter count of the whole model."""
    init_weights: Callable[[], None]
    """Fill the parameters with initial weights; not called when a checkpoint is loaded. Raises
    ConfigError for weights that do not fit."""
    norm: ShardedGradNorm | None
    """Gradient norm for sharded gradients; None when every rank holds all of them."""

    @property
    def unwrapped(self) -> torch.nn.Module:
        """The model, with the parameter names of the whole model."""
        return unwrap(self.module)

    def clip(self, most: float, loss_scale: float | None = None) -> torch.Tensor:
        """Clip the gradients to a global 2-norm of `most`; return the norm before.

        `loss_scale`: by which they are divided first; None: they are not scaled.
        """
        if loss_scale is not None:
            with torch.no_grad():
                found = (p.grad for p in self.module.parameters())
                torch._foreach_mul_([local_data(g) for g in found if g is not None], 1 / loss_scale)
        if self.norm:
            return self.norm.clip(most)
        return torch.nn.utils.clip_grad_norm_(self.module.parameters(), most)

    def reshard(self) -> None:
        """Free parameters that FSDP gathered for an evaluation."""
        if not self.norm:
            return
        from torch.distributed.fsdp import FSDPModule

        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def build_network(config: TrainerConfig, world: World, vocabulary: int) -> Network:
    """Build this rank's network without weights, for a dataset with this vocabulary size.

    Raises ConfigError.
    """
    settings = model_settings(config.model, config.data.sequence_length)
    layout = world.layout
    issues = list(check_shape(config.parallel, _shape(settings)))
    if settings.vocab_size < vocabulary:
        issues.append(
            issue(
                "model.path",
                f"{config.model.path} has vocab_size {settings.vocab_size}",
                f"must be at least {vocabulary}, the dataset's",
                "prepare the dataset with this model's tokenizer",
                "out-of-range",
            )
        )
    if issues:
        raise ConfigError(issues)
    with initialization.InitRecorder() as recorder:
        try:
            model = build_on_meta(settings)
        except Exception as error:  # of transformers
            raise invalid_file(config.model, error) from None
    if config.model.weights == "random":
        init_weights = partial(
            initialization.initialize, model, recorder.ops_for(model), config.seed
        )
    else:
        expected = pretrained.expected_tensors(model)
        init_weights = partial(_read_weights, model, expected, config, world)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    mesh = None if layout.plain else _mesh(world)
    limit_collectives(config.start_limit_s)  # the mesh has groups of its own
    stage = Stage(layout.stage(world.rank), layout.pipeline)
    if mesh and layout.tensor > 1:
        from trainer.parallel.tensor_parallel import apply_tensor_parallel

        apply_tensor_parallel(model, mesh["tensor"])
    if layout.pipeline > 1:
        keep_stage(model, stage)
    _prepare_blocks(model, config)
    if mesh:
        _shard(model, mesh, config, world)
    _make_memory(model, world.device, tie=mesh is None)
    module = model
    if not mesh:
        module = _replicate(model, world, config)
    return Network(
        module=module,
        passes=_passes(module, stage, mesh, config, world, settings),
        settings=settings,
        parameters=parameters,
        init_weights=init_weights,
        norm=ShardedGradNorm(model.parameters(), layout.data * layout.tensor, world.device)
        if mesh
        else None,
    )


def _read_weights(
    model: torch.nn.Module, expected: pretrained.Expected, config: TrainerConfig, world: World
) -> None:
    folder, ignore = config.model.path, config.model.ignore_tensors
    unread = pretrained.load_pretrained(model, expected, Path(folder), ignore)
    if unread and world.is_leader:
        names = ", ".join(unread[:3]) + (", ..." if len(unread) > 3 else "")
        print(
            f"model.weights: {folder}: {len(unread)} tensors are not read: {names}",
            file=sys.stderr,
            flush=True,
        )


def _shape(settings: Any) -> ModelShape:
    heads = getattr(settings, "num_attention_heads", None) or 0
    return ModelShape(
        kind=settings.model_type,
        layers=settings.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(settings, "num_key_value_heads", None) or heads,
        intermediate_size=getattr(settings, "intermediate_size", None) or 0,
        tied=bool(getattr(settings, "tie_word_embeddings", False)),
    )


def _mesh(world: World) -> DeviceMesh:
    layout = world.layout
    names = ("pipeline", "replicate", "shard", "tensor")
    sizes = tuple(getattr(layout, name) for name in names)
    return init_device_mesh(world.device.type, sizes, mesh_dim_names=names)


def _prepare_blocks(model: torch.nn.Module, config: TrainerConfig) -> None:
    """Apply activation checkpointing and compilation in place, which keeps parameter names."""
    for block in decoder_blocks(model):
        if config.blocks.recompute:
            inside: Any = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = inside
        if config.blocks.compile:
            block.compile()


def _shard(model: torch.nn.Module, mesh: DeviceMesh, config: TrainerConfig, world: World) -> None:
    """FSDP2, or HSDP when the shards are replicated as well."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    over = ("replicate", "shard") if world.layout.replicate > 1 else ("shard",)
    compute, reduce = (_DTYPES[d] for d in (config.precision.compute, config.precision.reduce))
    policy = MixedPrecisionPolicy(
        param_dtype=None if compute == torch.float32 else compute,
        reduce_dtype=reduce,
    )
    for module in (*decoder_blocks(model), model):
        fully_shard(module, mesh=mesh[over], mp_policy=policy)


def _replicate(model: torch.nn.Module, world: World, config: TrainerConfig) -> torch.nn.Module:
    if world.size == 1:  # DDP's hooks would only cost time
        return model
    device_ids = [world.device.index] if world.device.type == "cuda" else None
    with nullcontext() if config.blocks.compile else eager.without_compiler():
        return DistributedDataParallel(
            model,
            device_ids=device_ids,
            # Every rank draws, reads or loads the same weights; buffers are constants.
            init_sync=False,
            forward_sync_buffers=False,
            # Groups of an elastic run keep the gradients of several backward passes.
            gradient_as_bucket_view=not config.groups.workers,
        )


def _make_memory(model: Any, device: torch.device, *, tie: bool) -> None:
    """Allocate this rank's parameters on the device and move its buffers there."""
    model._apply(partial(_with_memory, device=device))
    if tie:  # FSDP2 keeps shared parameters shared itself
        model.tie_weights(recompute_mapping=False)


def _with_memory(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if not tensor.is_meta:
        return tensor.to(device)
    if is_sharded(tensor):
        return torch.empty_like(tensor, device=device)
    # empty_like of a meta tensor would load sympy.
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


def _passes(
    module: torch.nn.Module,
    stage: Stage,
    mesh: DeviceMesh | None,
    config: TrainerConfig,
    world: World,
    settings: Any,
) -> Passes:
    batch, compute = config.batch, _DTYPES[config.precision.compute]
    if mesh is None or stage.count == 1:
        autocast = compute if mesh is None and compute != torch.float32 else None
        return FullModelPasses(module, batch.micro_samples, autocast, sharded=mesh is not None)
    # Late import: only runs with a pipeline load it.
    from trainer.parallel.pipeline_passes import PipelinePasses, Shapes

    return PipelinePasses(
        module,
        stage,
        mesh["pipeline"].get_group(),
        schedule=config.parallel.schedule,
        micro_batches=config.samples_at_once(world.data_size) // batch.micro_samples,
        shapes=Shapes(
            micro_samples=batch.micro_samples,
            sequence_length=config.data.sequence_length,
            width=settings.hidden_size,
            vocabulary=settings.vocab_size,
            dtype=compute,
            device=world.device,
        ),
    )


class ShardedGradNorm:
    """Clips gradients that are sharded over the ranks of a mesh.

    Every rank sums the squares of what it holds, divided by how many ranks of its pipeline stage
    hold the same; one all-reduce gives the norm of the whole model.
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], ranks_per_stage: int, device: torch.device
    ) -> None:
        self._parameters = list(parameters)
        parts = [_shards(parameter) / ranks_per_stage for parameter in self._parameters]
        self._parts = torch.tensor(parts, dtype=torch.float64, device=device)

    @torch.no_grad()
    def clip(self, most: float) -> torch.Tensor:
        """Clip the gradients to a 2-norm of `most`; return the norm before, on the device."""
        used = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        parts = self._parts if len(used) == len(self._parameters) else self._parts[used]
        gradients = [local_data(p.grad) for p in self._parameters if p.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients)).double()
        squares = (norms.square() * parts).sum()
        dist.all_reduce(squares)
        norm = squares.sqrt().float()
        torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
        return norm


def _shards(tensor: torch.Tensor) -> int:
    """Return the number of shards of a tensor; 1 if it is not sharded."""
    if not is_sharded(tensor):
        return 1
    sizes = zip(tensor.device_mesh.shape, tensor.placements, strict=True)
    return math.prod(size for size, placement in sizes if not placement.is_replicate())
