"""Opens what a run reads."""

from __future__ import annotations

from training.trainer.config import TrainerConfig
from training.trainer.data.prefetch import Feed, Plan
from training.trainer.data.sampler import TrainingOrder, baseline_loss, spread
from training.trainer.data.windows import TokenWindows
from training.trainer.evaluation import Evaluator
from training.trainer.parallel.world import World
from training.trainer.preflight import Request


def open_data(request: Request) -> tuple[TrainingOrder, Evaluator]:
    """The training samples in their order, and the held-out ones. Raises DatasetError."""
    config, corpus = request.config, request.corpus
    length, documents = config.data.sequence_length, config.data.documents
    train = TokenWindows(corpus.opened, "train", length, documents)
    order = TrainingOrder(train, config.seed, corpus.weights)
    windows = TokenWindows(corpus.opened, "eval", length, documents)
    chosen = spread(windows, config.evaluation.samples, corpus.weights)
    counts = [dataset.index.unigram_counts for dataset in corpus.opened]
    evaluator = Evaluator(
        windows=windows,
        chosen=chosen,
        unigram_loss=baseline_loss(counts, windows.gather(chosen)[:, 1:], corpus.weights),
        micro_samples=config.batch.micro_samples,
    )
    return order, evaluator


def feed_of(config: TrainerConfig, world: World, order: TrainingOrder) -> Feed:
    """What gives this rank its share of each step."""
    step_samples = config.batch.global_samples
    plan = Plan(
        share=world.share_of(step_samples),
        step_samples=step_samples,
        end=config.steps * step_samples,
        steps_ahead=config.data.steps_ahead(gpu=world.device.type == "cuda"),
    )
    return Feed(order, plan, world.device)
