"""What must hold between settings, one line for each mistake; bounds of single settings are in settings.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from trainer.config.settings import SHAPE_FIELDS, ModelConfig, ParallelConfig, TrainerConfig
from trainer.config_errors import ConfigIssue, issue
from trainer.parallel.layout import ModelShape
from trainyard.objects import BadLocation, Location

Issues = Iterator[ConfigIssue]

LLAMA_LIKE: Final = ("llama", "mistral", "qwen2")
"""Model types that tensor and pipeline parallelism can divide: their blocks have Llama's modules."""
MOST_PARTS: Final = 1 << 16
"""Most samples after which a mixture repeats: its pattern is kept in memory."""
LARGEST_USUAL_SCALE: Final = 4.0
"""Beyond this factor, up or down, a linearly scaled learning rate is a guess."""
S3: Final = "s3://"
_TRACKING_SCHEMES: Final = ("sqlite", "http", "https")


def check(config: TrainerConfig) -> Issues:
    """Yield what cannot work for any number of ranks."""
    yield from _check_model(config.model)
    if config.precision.reduce == "bfloat16" and config.precision.compute == "float32":
        yield issue(
            "precision.reduce",
            "'bfloat16' loses the precision of float32 gradients",
            "must be float32 when precision.compute is float32",
            "change one of them",
            "conflict",
        )
    yield from _check_data(config)
    batch, groups = config.batch, config.groups
    if batch.global_samples % batch.micro_samples:
        yield out_of_range(
            "batch.global_samples",
            batch.global_samples,
            f"must be a multiple of batch.micro_samples = {batch.micro_samples}",
        )
    if groups.workers:
        yield from _check_elastic(config, groups.workers)
    store = config.checkpoint.store
    if store is not None and not _is_location(store):
        valid = "must be s3://BUCKET/PREFIX, or null for the run directory"
        yield issue(
            "checkpoint.store", f"{store!r} is not a location", valid, code="invalid-location"
        )
    if config.report.mlflow is not None:
        yield from check_uri("report.mlflow", config.report.mlflow)
    if not config.model.path:
        yield from check_shape(config.parallel, config.model.shape())
    if config.schedule.warmup_steps >= config.steps:
        valid = f"must be below steps = {config.steps}"
        yield out_of_range("schedule.warmup_steps", config.schedule.warmup_steps, valid)


def _check_elastic(config: TrainerConfig, workers: int) -> Issues:
    if workers & (workers - 1):
        yield out_of_range("groups.workers", workers, "must be a power of two")
    elif config.batch.global_samples % workers:
        valid = f"must be a multiple of groups.workers = {workers}"
        yield out_of_range("batch.global_samples", config.batch.global_samples, valid)
    if not config.deterministic:
        yield issue(
            "deterministic",
            "false in an elastic run",
            "must be true with groups.workers",
            "change it, or remove groups",
            "conflict",
        )


def check_world(config: TrainerConfig, world_size: int) -> Issues:
    """Yield what is wrong with the mesh and the batch for this many ranks: of one group in an elastic run."""
    parallel, batch = config.parallel, config.batch
    if not parallel.fits(world_size):
        names = [n for n in ("pipeline", "replicate", "shard", "tensor") if getattr(parallel, n)]
        product = " x ".join(f"{name} {getattr(parallel, name)}" for name in names)
        rule = "the world size" if parallel.replicate else "a divisor of the world size"
        yield out_of_range(
            "parallel",
            f"{product} = {math.prod(getattr(parallel, name) for name in names)}",
            f"must be {rule} = {world_size}",
            "change a dimension or the number of ranks",
        )
        return
    data_ranks = parallel.layout(world_size).data
    if config.groups.workers:
        yield from _check_group(config, config.groups.workers, data_ranks)
    elif not (passes := batch.passes(data_ranks)):
        at_once = batch.micro_samples * data_ranks
        below = batch.global_samples // at_once * at_once
        near = " or ".join(str(n) for n in (below, below + at_once) if n)
        yield out_of_range(
            "batch.global_samples",
            batch.global_samples,
            f"must be a multiple of micro_samples x data ranks = {batch.micro_samples} x {data_ranks}",
            f"use {near}, or change batch.micro_samples",
        )
    else:
        yield from _check_pipeline(parallel, passes)


def warnings(config: TrainerConfig) -> list[str]:
    """Return what may be a mistake though it works, one line each."""
    samples, reference = config.batch.global_samples, config.optimizer.scale_learning_rate
    if reference is None:
        return []
    scale, peak, found = samples / reference, config.peak_learning_rate, []
    if not 1 / LARGEST_USUAL_SCALE <= scale <= LARGEST_USUAL_SCALE:
        found.append(
            f"optimizer.scale_learning_rate: {samples} / {reference} samples scale "
            f"the peak by {scale:.3g} to {peak:.3g}; linear scaling is reliable up to a factor of "
            f"{LARGEST_USUAL_SCALE:g}; tune optimizer.learning_rate for this batch and use null"
        )
    if scale > 1 and config.schedule.warmup_steps == 0:
        found.append(
            f"schedule.warmup_steps: is 0 with a peak scaled up to {peak:.3g}; large batches "
            "diverge without a warm-up; set it above 0"
        )
    return found


def check_shape(parallel: ParallelConfig, shape: ModelShape) -> Issues:
    """Yield why a model of this shape cannot be divided like this."""
    for name in ("tensor", "pipeline"):
        if getattr(parallel, name) > 1 and shape.kind not in LLAMA_LIKE:
            yield out_of_range(
                f"parallel.{name}",
                f"{getattr(parallel, name)} with model type {shape.kind}",
                f"must be 1 unless the model type is one of {', '.join(LLAMA_LIKE)}",
                "use parallel.shard instead",
            )
    for name in ("heads", "kv_heads", "intermediate_size"):
        if (size := getattr(shape, name)) % parallel.tensor:
            valid = f"must be a divisor of model.{name} = {size}"
            yield out_of_range("parallel.tensor", parallel.tensor, valid)
    if parallel.pipeline > shape.layers:
        valid = f"must be at most the model's {shape.layers} layers"
        yield out_of_range("parallel.pipeline", parallel.pipeline, valid, "lower it")
    if parallel.pipeline > 1 and shape.tied:
        yield issue(
            "parallel.pipeline",
            f"{parallel.pipeline} with tied embeddings, which the first and the last stage would share",
            "must be 1 with tied embeddings",
            "set model.tie_embeddings: false",
            "conflict",
        )


def check_uri(path: str, uri: str) -> Issues:
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in _TRACKING_SCHEMES or not rest:
        valid = "must be sqlite:///FILE, http://SERVER or https://SERVER"
        yield issue(path, f"{uri!r} is not a tracking URI", valid, code="invalid-uri")
    elif scheme != "sqlite" and "@" in rest.partition("/")[0]:
        yield issue(
            path,
            "contains credentials, and the URI is recorded",
            "must not contain credentials",
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead",
            "plaintext-secret",
        )


def out_of_range(path: str, value: Any, valid: str, action: str = "change it") -> ConfigIssue:
    return issue(path, f"{value} is not valid", valid, action, "out-of-range")


def missing(path: str, valid: str = "must be set, it has no default") -> ConfigIssue:
    return issue(path, "missing", valid, "add it", "missing")


def _check_model(model: ModelConfig) -> Issues:
    if model.weights == "safetensors" and not model.path:
        yield issue(
            "model.weights",
            "'safetensors' without model.path",
            "requires model.path, from which weights are read",
            "set model.path, or model.weights: random",
            "conflict",
        )
    if model.path:
        if not model.path.startswith("/"):
            valid = (
                "must be a folder such as /data/models/NAME, or in a run's configuration "
                "s3://BUCKET/PREFIX or hub:ORG/NAME@COMMIT"
            )
            problem = f"{model.path!r} is not an absolute path"
            yield issue("model.path", problem, valid, _model_action(model.path), "invalid-path")
        for name in SHAPE_FIELDS:
            if getattr(model, name) != ModelConfig.model_fields[name].default:
                problem = f"{getattr(model, name)} besides model.path"
                valid = "must be set in the folder's config.json only"
                yield issue(f"model.{name}", problem, valid, "remove it", "conflict")
        return
    if model.hidden_size % (2 * model.heads):
        valid = (
            f"must be a multiple of 2 x heads = {2 * model.heads} (rotary embeddings turn pairs)"
        )
        yield out_of_range("model.hidden_size", model.hidden_size, valid)
    if model.heads % model.kv_heads:
        valid = f"must be a divisor of model.heads = {model.heads}"
        yield out_of_range("model.kv_heads", model.kv_heads, valid)


def _model_action(path: str) -> str:
    """Return what to write instead of a path that is not absolute."""
    if path.count("/") == 1 and "@" not in path and all(path.split("/")):
        return f"write hub:{path}@COMMIT for a model of the hub"
    return "copy the model to such a folder, and set its path"


def _check_data(config: TrainerConfig) -> Issues:
    data = config.data
    if not data.path:
        yield missing("data.path", "must be a dataset that `python -m trainer.prepare` wrote")
    if sum(data.weights()) > MOST_PARTS:
        yield issue(
            "data.sources",
            f"weights {', '.join(map(str, data.shares()))} repeat after too many samples",
            f"must be in proportion to whole numbers with a sum of at most {MOST_PARTS}",
            "round them",
            "out-of-range",
        )
    for path in data.paths():
        if path.startswith(S3) and data.staging is None:
            valid = f"must be a folder on a local disk, to which {path} is copied"
            yield missing("data.staging", valid)


def _check_group(config: TrainerConfig, workers: int, data_ranks: int) -> Issues:
    """Yield why the samples of a logical worker cannot be divided over the data ranks of a group."""
    samples, micro = config.batch.global_samples, config.batch.micro_samples
    each, pipeline = config.samples_at_once(data_ranks), config.parallel.pipeline
    if samples % (workers * data_ranks):
        valid = f"must be a multiple of groups.workers x data ranks of a group = {workers} x {data_ranks}"
        yield out_of_range("batch.global_samples", samples, valid)
    elif each % micro and (each > micro or pipeline > 1):
        valid = (
            f"must be a divisor of the {each} samples that a rank computes of each logical worker"
        )
        above = ", or above them" if pipeline == 1 else ""
        yield out_of_range("batch.micro_samples", micro, valid + above)
    elif pipeline > 1:
        yield from _check_pipeline(config.parallel, each // micro)


def _check_pipeline(parallel: ParallelConfig, micro_batches: int) -> Issues:
    """Yield why this many micro-batches per step and data rank do not fill the pipeline."""
    if parallel.schedule == "1f1b" and micro_batches < parallel.pipeline:
        yield out_of_range(
            "parallel.pipeline",
            f"{parallel.pipeline} stages for {micro_batches} micro-batches per step",
            "must be at most the number of micro-batches with schedule 1f1b",
            "lower batch.micro_samples",
        )


def _is_location(text: str) -> bool:
    try:
        Location.parse(text)
    except BadLocation:
        return False
    return True
