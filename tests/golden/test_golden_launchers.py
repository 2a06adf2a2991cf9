"""Manifests of each job kind for the example run, and of some for programs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.conftest import as_text, assert_same, read_folder, write_folder
from tests.golden.example_runs import LAUNCHERS, platform, run_of
from tests.golden.manifest_files import expanded, folded
from training import runtime_archive
from training.job import manifests
from training.program import DEEPSPEED_FILE, Program, Source
from training.spec import Groups

_COMMIT = "c" * 40


_PROGRAM = Program(
    launcher="deepspeed",
    command=("train.py", "--out", "{checkpoints}", "--deepspeed_config={deepspeed_config}"),
    env={"OMP_NUM_THREADS": "4"},
    source=Source(folder="code", sha256="5" * 64, archive=b"packed"),
    tracking_uri="https://mlflow.example.com",
    progress_timeout_s=1800,
    files={DEEPSPEED_FILE: "{}"},
)
_PROGRAMS = {
    "jobset": _PROGRAM,
    "mpijob": Program(launcher="mpirun", command=("train.py",)),
    "pytorchjob": Program(launcher="torchrun", command=("-m", "package.train")),
}
_GROUPS = Groups(min=1, max=2, on_demand=1)
NAMES = (*LAUNCHERS, *(f"{kind}-program" for kind in _PROGRAMS), "jobset-groups")


def _rendered() -> dict[str, tuple[str, list[dict[str, Any]]]]:
    runs = {kind: run_of(kind) for kind in LAUNCHERS}
    runs |= {
        f"{kind}-program": run_of(kind, config={}, program=program)
        for kind, program in _PROGRAMS.items()
    }
    runs["jobset-groups"] = run_of("jobset", groups=_GROUPS)
    with pytest.MonkeyPatch.context() as patch:  # each change of the library would change the file
        patch.setattr(runtime_archive, "package", lambda: b"trainyard")
        return {
            name: (run.run_id, manifests(run, platform(), _COMMIT)) for name, run in runs.items()
        }


@pytest.fixture(scope="module")
def committed(request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    if request.config.getoption("--update-golden"):
        files = folded(_rendered())
        write_folder("launchers", {name: as_text(docs) for name, docs in files.items()})
    return read_folder("launchers")


@pytest.mark.parametrize("name", NAMES)
def test_each_launcher_renders_its_committed_manifests(
    name: str, committed: dict[str, list[dict[str, Any]]]
) -> None:
    assert_same(name, expanded(committed)[name], _rendered()[name][1])


def test_committed_files_are_what_a_refresh_writes(
    committed: dict[str, list[dict[str, Any]]],
) -> None:
    assert committed == folded(_rendered())
