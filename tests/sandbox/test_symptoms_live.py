"""Real failures on the real scheduler and with the real trainer, diagnosed by `why`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.observability import series
from sandbox.node.records import pod_folder
from sandbox.ports import free_port
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import trainer_image, until
from tests.sandbox.ops_kit import WHY_EVERY_S, WORK, Json, Live, Stage

pytestmark = [pytest.mark.sandbox, pytest.mark.long(56)]

STAGE = Stage(team="symptoms")
MIB = 2**20
TORCH_S = 240.0
"""To load torch on a machine that may be busy with other tests."""

DATASET = r"""
mkdir /work/text && for i in 1 2 3 4 5 6; do seq $i 2000 > /work/text/$i.txt; done
python -m trainer.prepare --source /work/text --suffix .txt --eval-fraction 0.5 --out /work/data \
    > /dev/null || exit 9
"""
CONFIG = {
    "steps": 5000,
    "model": {"hidden_size": 16, "intermediate_size": 32, "layers": 1, "heads": 2, "kv_heads": 1},
    "data": {"path": "/work/data", "sequence_length": 16},
    "batch": {"global_samples": 8, "micro_samples": 8},
    "evaluation": {"every_steps": None, "samples": 4},
}
TRAIN = f"""{DATASET}
cat > /work/config.yaml <<'END'
{json.dumps(CONFIG)}
END
"""


def test_scheduling_causes_are_distinguished_without_a_queue(live: Live) -> None:
    live.start("strict", WORK, pool="no-such-pool", queued=False)
    answer = live.await_symptom("strict", "strict-affinity")
    assert any("do not have the labels" in line for line in answer["evidence"])

    live.start("half", WORK, nodes=3, queued=False)
    until(lambda: len(_running(live, "half")) == 2, "two of three run")
    answer = live.await_symptom("half", "partial-gang")
    assert answer["headline"].startswith("runs only 2 of 3 workers")
    assert "nothing schedules it as a gang" in answer["remedy"][0]

    live.start("late", WORK, queued=False)
    answer = live.await_symptom("late", "no-gpu-capacity")
    assert f"half (team {STAGE.team}) holds 2 GPUs" in answer["evidence"]
    live.stop("strict", "half", "late")


HANGS = """
import os, runpy, signal, time
from trainer.data import windows

read, calls = windows.TokenWindows.rows_at, []

def hang(self, places):
    calls.append(places)
    if os.environ["RANK"] == "1" and len(calls) > 3:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)
    return read(self, places)

windows.TokenWindows.rows_at = hang
runpy.run_module("trainer", run_name="__main__")
"""
"""The trainer, whose second rank does nothing more after some batches."""

HUNG = f"""{TRAIN}
cat > /work/hangs.py <<'END'{HANGS}END
export PYTHONPATH=/work:$PYTHONPATH
exec python -m trainyard.launch --ranks=2 -- -m hangs \\
    --config /work/config.yaml --run-dir /work/hung --set collective_timeout_s=10 \\
    --set start_timeout_s=10 --set batch.micro_samples=4
"""

LONELY = r"""
export TRAINYARD_NODES=2 TRAINYARD_RENDEZVOUS_PORT=29499
exec python -m trainyard.launch --launcher=torchrun --join-seconds=1 -- -m this
"""
"""The first of two pods; the second is missing."""

TORN = f"""{TRAIN}
mkdir -p /work/torn/checkpoints/step-00000005
echo '{{}}' > /work/torn/checkpoints/step-00000005/manifest.json
exec python -m trainer --config /work/config.yaml --run-dir /work/torn
"""


@pytest.fixture(scope="module")
def broken(staged_team: Cluster) -> None:
    """Failing runs, started in parallel because loading torch is slow."""
    for name, script in (("lonely", LONELY), ("torn", TORN), ("hung", HUNG)):
        # Two nodes with a GPU, and three runs.
        asks = {"limits": {"cpu": "100m", "memory": "64Mi"}}
        manifest = STAGE.run(name, script, queued=False, image=trainer_image(), resources=asks)
        staged_team.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def test_rendezvous_failure_is_diagnosed_from_the_log(live: Live, broken: None) -> None:
    answer = live.await_symptom("lonely", "rendezvous-failed", deadline_s=TORCH_S)
    assert answer["headline"].endswith(": the rendezvous of its pods failed")
    assert "RendezvousTimeoutError" in answer["evidence"][0]
    live.stop("lonely")


def test_failed_restore_is_diagnosed_from_the_log(live: Live, broken: None) -> None:
    answer = live.await_symptom("torn", "restore-failed", deadline_s=TORCH_S)
    assert "none of the 1 checkpoints can be loaded" in answer["evidence"][0]
    assert "python -m trainer.checkpoint verify /checkpoints/torn" in answer["remedy"][0]
    live.stop("torn")


def test_collective_timeout_is_diagnosed_from_the_log(live: Live, broken: None) -> None:
    answer = live.await_symptom("hung", "collective-timeout", deadline_s=TORCH_S)
    assert answer["headline"].endswith(": a collective timed out: ranks waited for each other")
    assert "rank 0: another rank is gone or hangs" in answer["evidence"][0]
    live.stop("hung")


@contextlib.contextmanager
def memory_limit(name: str, limit: int) -> Iterator[Path]:
    """A cgroup whose processes may have so many bytes; the file that takes their pids."""
    root = Path("/sys/fs/cgroup")
    old = root / "memory"
    group = (old if old.is_dir() else root) / name
    file = "memory.limit_in_bytes" if old.is_dir() else "memory.max"
    try:
        group.mkdir()
        (group / file).write_text(str(limit))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory can be limited here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        until(lambda: _removed(group), f"{group} is empty")


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def test_oom_killed_container_is_diagnosed(live: Live) -> None:
    script = "until test -e /work/go; do sleep 0.05; done; head -c 200000000 /dev/zero | tail"
    with memory_limit("trainyard-symptoms", 32 * MIB) as procs:
        live.start("greedy", script, queued=False)
        [pod] = until(lambda: _running(live, "greedy"), "greedy runs")
        folder = pod_folder(live.cluster.state, pod)
        run = until(lambda: folder.attempts("trainer")[-1].run(), "its process is known")
        procs.write_text(str(run["pid"]))
        (folder.volumes / "work" / "go").touch()
        answer = live.await_symptom("greedy", "out-of-memory")
        assert "exited with 137 (OOMKilled)" in " ".join(answer["evidence"])
        assert "resources.memory" in answer["remedy"][0]
        live.stop("greedy")


def _running(live: Live, run: str) -> list[Json]:
    return [pod for pod in live.pods(run) if pod["status"].get("phase") == "Running"]


SLOW = """
import os, runpy, sys, time
from trainer.data import windows

read, sync = windows.TokenWindows.rows_at, os.fsync

def slow_read(self, places):
    time.sleep(0.01 * len(places))
    return read(self, places)

def slow_sync(descriptor):
    time.sleep(0.3)
    sync(descriptor)

windows.TokenWindows.rows_at, os.fsync = slow_read, slow_sync
sys.argv[0] = "trainer"
runpy.run_module("trainer", run_name="__main__")
"""
"""The trainer on storage that takes 10 ms to find a sample, and 0.3 s to make a file durable."""


@contextlib.contextmanager
def prometheus(cluster: Cluster, folder: Path, target: int) -> Iterator[str]:
    """The URL of a Prometheus that scrapes one local port every second."""
    job: Json = {"job_name": series.TRAINER_JOB, "honor_labels": True}
    job["static_configs"] = [{"targets": [f"127.0.0.1:{target}"]}]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (folder / "prometheus.json").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        cluster.settings.binary("prometheus"),
        f"--config.file={folder / 'prometheus.json'}",
        f"--storage.tsdb.path={folder / 'samples'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: _answers(f"http://{address}/-/ready"), "Prometheus is ready")
            yield f"http://{address}"
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(urllib.request.urlopen(url, timeout=5).status == 200)
    return False


def test_slow_data_and_slow_storage_are_diagnosed_from_metrics(live: Live, tmp_path: Path) -> None:
    port = free_port()
    script = f"""{TRAIN}
    export TRAINYARD_METRICS_PORT={port} TRAINYARD_METRICS_ADDRESS=127.0.0.1
    exec python -c '{SLOW}' --config /work/config.yaml --run-dir /work/slow \
        --set checkpoint.every_steps=20
    """
    with prometheus(live.cluster, tmp_path, port) as url:
        live.start("slow", script, queued=False, image=trainer_image())
        answer = live.await_symptom("slow", "slow-loader", "--prometheus", url, deadline_s=TORCH_S)
        assert "of the time" in answer["headline"]
        assert answer["gaps"] == []

        def storage_too() -> list[str]:
            lines = live.why("slow", "--prometheus", url)["health"]
            return [line for line in lines if line.startswith("slow-storage: ")]

        [line] = until(storage_too, "slow storage is reported", TORCH_S, every_s=WHY_EVERY_S)
        assert "(planned: 1 s)" in line
        live.stop("slow")
