"""What a run publishes once it is done: `checkpoint.export`, and with `checkpoint.store` a copy in its bucket.

RUN/export/: config.json, model.safetensors, tokenizer, as transformers loads them; appears when it is complete.
STORE/metrics.jsonl, events.jsonl, attempts/, export/: as in the run directory, so that the bucket has all of it.
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
from trainer.preflight import RunRequest
from trainer.prepare.dataset import TOKENIZER_FILE
from trainer.results import copying
from trainyard import session
from trainyard.contract import EXIT_PREEMPTED
from trainyard.disk import fsync_folder
from trainyard.objects import ObjectError, Objects
from trainyard.objects.upload import Uploader
from trainyard.reporting import reporter


def publish(run: Run, request: RunRequest, leave: Callable[[int], None]) -> None:
    """Export the model and copy the results, where the configuration says so; by one rank.

    `leave`: see `write_export`, which also says what this raises.
    """
    reporter.wait()
    settings = request.config.checkpoint
    if settings.export:
        write_export(run, request.run_dir, leave)
    if settings.store is not None:
        copy_to_bucket(run, request.run_dir, settings.store)


def copy_to_bucket(run: Run, run_dir: Path, store: str) -> None:
    """Copy the files; called by one rank after the others' end.

    A bucket that refuses them does not make the run fail: they stay in the run directory, and an event and a line
    of the log say so.
    """
    begun, step = time.perf_counter(), run.progress.step
    try:
        files, size = copy_files(run_dir, Objects.at(store))
    except (ObjectError, OSError) as error:
        text = " ".join(str(error).split())[:300]
        run.display.log(f"results stay in {run_dir}: not copied to {store}: {text}")
        run.events.write("results_not_copied", step, to=store, error=text)
        return
    run.display.log(f"copied {files} files to {store}")
    seconds = time.perf_counter() - begun
    run.events.write("results_copied", step, to=store, files=files, bytes=size, seconds=seconds)


def copy_files(run_dir: Path, to: Objects) -> tuple[int, int]:
    """Copy the results; return the numbers of files and bytes. Raises ObjectError and OSError."""
    files = size = 0
    uploader = Uploader()
    for path in copying.results(run_dir):
        size += copying.send(path, to, path.relative_to(run_dir).as_posix(), uploader)
        files += 1
    return files, size


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
