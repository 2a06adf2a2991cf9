"""What may well be a mistake in a run, though it can work: told at preview, and never refused."""

from __future__ import annotations

from training.spec import RunSpec
from training.trainer import config as trainer_config


def of(run: RunSpec) -> list[str]:
    """One line each; the trainer says the same when it starts."""
    settings = dict(run.config)
    settings["data"] = {**settings.get("data", {}), "path": run.dataset.path}
    return [f"{run.run_id}: config: {line}" for line in trainer_config.parse(settings).warnings()]
