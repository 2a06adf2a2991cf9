"""The model for transformers, written once a run is done: `checkpoint.export`.

RUN/export/    config.json, model.safetensors, tokenizer: appears when it is complete
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from trainer.checkpoint.tokenizer_export import CONFIG_FILE, TokenizerExportError, export_files
from trainer.config_errors import config_error
from trainer.loop import Run
from trainer.prepare.dataset import TOKENIZER_FILE
from trainyard import session
from trainyard.contract import EXIT_PREEMPTED
from trainyard.disk import fsync_folder

EXPORT_DIR: Final = "export"
_UNFINISHED: Final = ".export-unfinished"


def check_export(attachments: Mapping[str, bytes], tokens: Mapping[str, Any]) -> None:
    """Check before the first step that the model can be exported. Raises ConfigError.

    `attachments`: the model's configuration and tokenizer, as checkpoints hold them; `tokens`: the token format
    that they record.
    """
    try:
        if CONFIG_FILE not in attachments:
            raise TokenizerExportError("the model is not one of transformers")
        export_files(json.loads(attachments[CONFIG_FILE]), tokens, attachments.get(TOKENIZER_FILE))
    except TokenizerExportError as error:
        raise config_error(
            "checkpoint.export",
            f"the model cannot be exported: {' '.join(str(error).split())}",
            "requires a model and a tokenizer that transformers loads as they are",
            "set checkpoint.export: false",
            "not-exportable",
        ) from None


def write_export(run: Run, run_dir: Path, leave: Callable[[int], None]) -> None:
    """Write the last checkpoint's model, unless an earlier attempt has; called by one rank after the others' end.

    Needs memory for the whole model. A notice calls `leave`: the next attempt writes it again. Raises OSError,
    RestoreError, CorruptCheckpoint.
    """
    from trainer.checkpoint.restore import export_model

    target = run_dir / EXPORT_DIR
    if target.exists():
        return
    run.notice.call(lambda: leave(EXIT_PREEMPTED))
    begun, unfinished = time.perf_counter(), run_dir / _UNFINISHED
    run.display.log(f"writing the model to {target}")
    if unfinished.exists():  # of an attempt that was killed
        shutil.rmtree(unfinished)
    export_model(session.store(), run.progress.step, unfinished)
    _fsync_files(unfinished)
    unfinished.rename(target)
    fsync_folder(run_dir)
    run.events.write("exported", run.progress.step, seconds=time.perf_counter() - begun)


def _fsync_files(folder: Path) -> None:
    for file in folder.iterdir():
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
    fsync_folder(folder)
