"""`require` in a run file: the run's own pods measure their network first, and other runs are as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError
from tests.golden.example_runs import (
    IMAGE,
    RUN_FILE,
    platform,
    project_in,
    run_of,
    write_runs,
)
from tests.unit.training.config_issues import check_issues
from tests.unit.training.pods import containers
from trainer.validation import host
from training import run_files
from training.launchers import LAUNCHERS as RENDERED
from training.spec import RunSpec

FAST = {"require": {"collectiveGBps": 80}}


def load(folder: Path, **changed: Any) -> RunSpec:
    project = project_in(folder)
    write_runs(project, RUN_FILE | changed)
    [run] = run_files.load(("llama",), platform(), {"trainer": IMAGE}, project)
    return run


def check(case: str, code: str, folder: Path, **changed: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, **changed)
    check_issues("collectives", case, caught.value, f"require.collectiveGBps: {code}")


def test_runs_without_it_keep_their_ids_and_it_is_a_part_of_others(tmp_path: Path) -> None:
    plain, fast = load(tmp_path / "plain"), load(tmp_path / "fast", **FAST)
    assert plain.collective_gbps is None and fast.collective_gbps == 80
    assert plain.run_id != fast.run_id
    assert load(tmp_path / "empty", require={}).run_id == plain.run_id


@pytest.mark.parametrize("launcher", [n for n, one in RENDERED.items() if one.support.torchrun])
def test_the_same_pods_with_the_same_environment_check_and_then_run(launcher: str) -> None:
    plain = containers(RENDERED[launcher].render(run_of(launcher), platform()))
    fast = containers(RENDERED[launcher].render(run_of(launcher, collective_gbps=80.0), platform()))
    assert plain and len(plain) == len(fast)
    for before, after in zip(plain, fast, strict=True):
        for one in (before, after):
            if "trainyard.restarts" in one["command"]:  # its parent, which counts failures
                one["command"] = one["command"][one["command"].index("--") + 1 :]
        gate, separator = after["command"][:4], after["command"].index("--")
        assert " ".join(gate) == "python -m trainer.validation gate"
        # The ids differ, and nothing else of the trainer's own command.
        own = after["command"][separator + 1 :]
        assert [w.split("=")[0] for w in own if "llama" not in w] == [
            w.split("=")[0] for w in before["command"] if "llama" not in w
        ]
        assert {e["name"] for e in after["env"]} - {e["name"] for e in before["env"]} == {
            host.ZONE_ENV
        }
        assert after["resources"] == before["resources"]
        names = [e["name"] for e in after["env"]]
        assert len(names) == len(set(names))


def test_mpirun_and_single_gpus_have_no_such_check(tmp_path: Path) -> None:
    check("mpirun", "kind-without-torchrun", tmp_path / "mpi", jobKind="mpijob", **FAST)
    alone = {"nodes": 1, "gpusPerNode": 1, "jobKind": "job"}
    check("one GPU", "single-rank", tmp_path / "one", **alone, **FAST)


def test_a_bandwidth_is_a_positive_number(tmp_path: Path) -> None:
    check("no bandwidth", "out-of-range", tmp_path, require={"collectiveGBps": 0})
