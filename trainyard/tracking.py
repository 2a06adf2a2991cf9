"""Send a run directory to MLflow with its package: `python -m trainyard.tracking RUN_DIR --uri URI`.

metrics.jsonl and events.jsonl are the queue: they are only read, and mlflow.json next to them records what was
sent. So a server that is away loses nothing, later attempts continue the same MLflow run, and a finished run can
be sent afterwards. A run that trains has a process for it: importing MLflow takes seconds, and requests would hold
the interpreter's lock now and then. The MLflow run is created with the first line of metrics.jsonl.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from trainyard import contract

EXPERIMENT: Final = "trainyard"
EXPERIMENT_ENV: Final = "MLFLOW_EXPERIMENT_NAME"
"""MLflow's own variable."""
CURSOR_FILE: Final = "mlflow.json"
FLUSH_S: Final = 10.0
"""Seconds to send the rest once the run's process has ended."""
CLOSE_S: Final = FLUSH_S + 2.0
"""Longest wait for the process that sends the rest."""
_INTERVAL_S: Final = 2.0
"""Polling interval of the files in seconds; it doubles up to _LONGEST_PAUSE_S while the server is away."""
_LONGEST_PAUSE_S: Final = 60.0
_BATCH: Final = 90
"""Lines or parameters per request; MLflow takes 1,000 numbers and 100 parameters, and a line has up to ten."""
_STEP_KEYS: Final = (
    *("loss", "lr", "grad_norm", "tokens_per_s", "samples_per_s", "mfu", "step_time_s"),
    *("loader_time_s", "collective_time_s", "checkpoint_stall_s"),
)
_EVENT_KEYS: Final = {
    "evaluated": {"loss": "evaluation_loss"},
    "checkpoint_commit": {"seconds": "checkpoint_write_s", "bytes": "checkpoint_bytes"},
    "resumed": {"attempt": "resumed_attempt"},
}
_SETTINGS: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
"""Variables of MLflow's package where the user has set none: this process retries, and reports to nobody else."""
_SECRETS: Final = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")


class _Tail:
    """Reads whole JSON lines of a file that another process appends to; a file that replaces it from its start."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.at = (-1, 0, 0)
        """Inode, bytes and lines that are done."""

    def read(self) -> tuple[list[dict[str, Any]], tuple[int, int, int]]:
        """Return a batch of the lines that follow `at`, and where they end."""
        found: list[dict[str, Any]] = []
        inode, offset, count = self.at
        with suppress(FileNotFoundError), self._file.open("rb") as stream:
            if (current := os.fstat(stream.fileno()).st_ino) != inode:
                inode, offset, count = current, 0, 0
            stream.seek(offset)
            while len(found) < _BATCH and (line := stream.readline()).endswith(b"\n"):
                offset += len(line)
                with suppress(ValueError):
                    found.append(dict(json.loads(line)))
        return found, (inode, offset, count + len(found))


class MlflowSync:
    """Sends one run directory, as often as wanted; whatever goes wrong here must not matter to the run."""

    def __init__(self, run_dir: Path, uri: str) -> None:
        self._run_dir, self._uri = run_dir, uri
        self._metrics = _Tail(run_dir / contract.METRICS_FILE)
        self._events = _Tail(run_dir / contract.EVENTS_FILE)
        self._client: Any = None
        self._cursor: dict[str, Any] = {}
        """URI, run_id, and what that MLflow run has: the newest step, and the number of events."""
        self._newest: Mapping[str, Any] = {}
        self._failing = False

    def send(self, *, ending: bool = False) -> bool:
        """Send everything new, at the end the status, too. Return whether it arrived; print a failure once."""
        try:
            self._send()
            if ending and self._cursor:
                self._set_status(mlflow_status(self._newest))
        except Exception as error:
            if not self._failing:
                text = f"mlflow: {self._uri}: {_cause(error)}; the run directory keeps all metrics"
                print(text, file=sys.stderr, flush=True)
            self._failing = True
            return False
        self._failing = False
        return True

    def finish(self, seconds: float) -> bool:
        """Send the rest and the status; return whether that succeeded in time."""
        limit, pause = time.monotonic() + seconds, 0.05
        while not self.send(ending=True):
            if time.monotonic() + pause > limit:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
        return True

    def _send(self) -> None:
        """Send events, then steps; a step that is done again has the same loss and is not sent again."""
        if not self._cursor and not self._metrics.read()[0]:
            return
        cursor = self._cursor = self._cursor or self._begin()
        while True:
            events, after_events = self._events.read()
            steps, after_steps = ([], self._metrics.at) if events else self._metrics.read()
            if not events and not steps:
                return
            known = max(0, cursor["events"] - self._events.at[2])
            begun = [e for e in events if cursor["events"] == 0 and e["event"] == "started"]
            fresh = events[known:] + [line for line in steps if line["step"] > cursor["step"]]
            self._log(dict(_flatten(begun[0].get("config", {}))) if begun else {}, fresh)
            self._newest = events[-1] if events else self._newest
            self._events.at, self._metrics.at = after_events, after_steps
            cursor["step"] = max([cursor["step"], *(line["step"] for line in steps)])
            cursor["events"] = max(cursor["events"], after_events[2])
            self._write(cursor)

    def _begin(self) -> dict[str, Any]:
        """Return the cursor of the MLflow run that earlier attempts wrote to, or of a new one."""
        for key, value in _SETTINGS.items():
            os.environ.setdefault(key, value)
        from mlflow import MlflowClient

        self._client = client = MlflowClient(tracking_uri=self._uri)
        cursor = read_cursor(self._run_dir)
        if cursor.get("uri") != self._uri or not self._has_run(cursor["run_id"]):
            experiment = os.environ.get(EXPERIMENT_ENV) or EXPERIMENT
            known = client.get_experiment_by_name(experiment)
            place = known.experiment_id if known else client.create_experiment(experiment)
            name = os.environ.get(contract.RUN_ID_ENV) or self._run_dir.resolve().name
            facts = {"run_id": name, "team": os.environ.get(contract.TEAM_ENV, "")}
            tags = {f"trainyard.{key}": value for key, value in facts.items() if value}
            run = client.create_run(place, run_name=name, tags=tags)
            cursor = {"uri": self._uri, "run_id": run.info.run_id, "step": 0, "events": 0}
            self._write(cursor)
        self._cursor = cursor
        self._set_status("RUNNING")
        return cursor

    def _has_run(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _log(self, parameters: Mapping[str, str], lines: list[dict[str, Any]]) -> None:
        from mlflow.entities import Metric, Param

        run_id, named = self._cursor["run_id"], [Param(*one) for one in parameters.items()]
        for start in range(0, len(named), _BATCH):
            self._client.log_batch(run_id, params=named[start : start + _BATCH])
        if metrics := [Metric(*point) for line in lines for point in points(line)]:
            self._client.log_batch(run_id, metrics=metrics)

    def _set_status(self, status: str) -> None:
        run_id = self._cursor["run_id"]
        if status in ("FINISHED", "FAILED"):
            self._client.set_terminated(run_id, status)
        else:
            self._client.update_run(run_id, status=status)
        self._client.set_tag(run_id, "trainyard.status", status)

    def _write(self, cursor: Mapping[str, Any]) -> None:
        fresh = self._run_dir / f".{CURSOR_FILE}-{os.getpid()}"
        fresh.write_text(json.dumps(cursor) + "\n", encoding="utf-8")
        fresh.replace(self._run_dir / CURSOR_FILE)


def read_cursor(run_dir: Path) -> dict[str, Any]:
    """Return where the last sending stopped; empty when there was none, or a crash has damaged the file."""
    try:
        found = json.loads((run_dir / CURSOR_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return (
        found
        if isinstance(found, dict) and {"uri", "run_id", "step", "events"} <= set(found)
        else {}
    )


def points(line: Mapping[str, Any]) -> Iterator[tuple[str, float, int, int]]:
    """Yield name, value, Unix milliseconds and step of the numbers in a line of metrics.jsonl or events.jsonl."""
    names = _EVENT_KEYS.get(line["event"], {}) if "event" in line else {k: k for k in _STEP_KEYS}
    for key, name in names.items():
        if isinstance(value := line.get(key), int | float):
            yield name, float(value), int(line.get("time", 0) * 1000), int(line.get("step", 0))


def mlflow_status(event: Mapping[str, Any]) -> str:
    """Return the MLflow status of an ended run from its newest event."""
    reason = str(event.get("reason")) if event.get("event") == "finished" else ""
    return {"done": "FINISHED", "preempted": "SCHEDULED"}.get(reason, "FAILED")


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _cause(error: Exception) -> str:
    """Return an error in one line, without the credentials of MLflow's variables."""
    if isinstance(error, ImportError):
        return f"{error}; required is the package mlflow-skinny; pip install 'trainyard[mlflow]'"
    text = " ".join(str(error).split())
    for secret in filter(None, map(os.environ.get, _SECRETS)):
        text = text.replace(secret, "***")
    return text[:200]


def start(environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Start a process that sends what a run writes, until `close`; it ends soon after this one.

    Return None without a tracking server in the run's environment, or if the process cannot start.
    """
    uri, run_dir = (environment.get(n) for n in (contract.TRACKING_URI_ENV, contract.RUN_DIR_ENV))
    if not uri or not run_dir:
        return None
    # By PYTHONPATH and not by the working directory: relative files of the URI stay the user's.
    own = str(Path(__file__).resolve().parents[1])
    paths = filter(None, (own, environment.get("PYTHONPATH", "")))
    try:
        Path(run_dir).mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "trainyard.tracking", run_dir, "--uri", uri, "--follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
    except OSError as error:
        print(f"cannot start MLflow tracking: {error}", file=sys.stderr, flush=True)
        return None


def close(process: subprocess.Popen[bytes], seconds: float = CLOSE_S) -> None:
    """End the process; wait this long for it to send the rest, 0: not at all. The next attempt sends it."""
    assert process.stdin
    process.stdin.close()
    if seconds > 0:
        try:
            process.wait(min(seconds, CLOSE_S))
        except subprocess.TimeoutExpired:
            process.kill()


def main() -> int:
    """Send a run; return the exit code, 1 when not everything was sent."""
    parser = argparse.ArgumentParser(
        prog="python -m trainyard.tracking",
        description="Send the metrics of a run directory to MLflow, once or while the run writes them.",
        epilog="example: python -m trainyard.tracking runs/hello-v1 --uri https://mlflow.example.com",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run directory")
    parser.add_argument("--uri", required=True, help="tracking server, or sqlite:///FILE")
    parser.add_argument("--follow", action="store_true", help="until standard input is closed")
    options = parser.parse_args()
    run_dir, uri = options.run_dir, options.uri
    if not run_dir.is_dir():
        parser.error(f"RUN_DIR: {run_dir} is not a folder; name a run directory")
    if not uri.startswith(("http://", "https://", "sqlite:///")):
        valid = "must be sqlite:///FILE, http://SERVER or https://SERVER"
        parser.error(f"--uri: {uri!r} is not a tracking URI; {valid}; correct it")
    sync = MlflowSync(run_dir, uri)
    with (run_dir / ".mlflow.lock").open("w") as lock:
        if options.follow:
            # Signals of a terminal or a launcher reach this process too; it ends when the run's has.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            os.nice(10)
        with suppress(OSError):  # a file system without locks: then two attempts may send the same
            fcntl.flock(lock, fcntl.LOCK_EX)
        pause = _INTERVAL_S
        while options.follow and not select.select([sys.stdin], [], [], pause)[0]:
            pause = _INTERVAL_S if sync.send() else min(2 * pause, _LONGEST_PAUSE_S)
        return 0 if sync.finish(FLUSH_S) else 1


if __name__ == "__main__":
    sys.exit(main())
