"""Opens what a run reads."""

from __future__ import annotations

from training.trainer.data import TokenWindows, TrainingOrder
from training.trainer.evaluation import Evaluator
from training.trainer.request import Request


def open_data(request: Request) -> tuple[TrainingOrder, Evaluator]:
    """The training samples in their order, and the held-out ones. Raises DatasetError."""
    config, folder, index = request.config, request.data_folder, request.index
    length = config.data.sequence_length
    order = TrainingOrder(TokenWindows(folder, index, "train", length), config.seed)
    evaluator = Evaluator.over(
        TokenWindows(folder, index, "eval", length),
        index,
        config.evaluation.samples,
        config.batch.micro_samples,
    )
    return order, evaluator
