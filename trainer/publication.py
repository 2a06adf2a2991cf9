"""What a run publishes once it is done: `checkpoint.export`, and with `checkpoint.store` a copy in its bucket.

STORE/metrics.jsonl, events.jsonl, attempts/, export/: as in the run directory, so that the bucket has all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from trainer import export
from trainer.loop import Run
from trainer.preflight import RunRequest
from trainer.results import contents
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
        export.write_export(run, request.run_dir, leave)
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
    for path in contents.results(run_dir):
        size += contents.send(path, to, path.relative_to(run_dir).as_posix(), uploader)
        files += 1
    return files, size
