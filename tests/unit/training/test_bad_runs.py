"""Run files that no traceback may answer: names, sizes and settings that cannot be."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError
from tests.golden.example_runs import IMAGE, RUN_FILE, platform, project_in, write_runs
from training.deployment import run_files

Run = dict[str, Any]

SIZE = "must be between 1Mi and 8192Pi (m means milli, not mega); correct its unit"

BAD: dict[str, tuple[Callable[[Run], object], str]] = {
    "a name that begins with a digit": (
        lambda r: r.update(name="7b-chat"),
        "name: '7b-chat' is not valid; must start with a letter: Services are named after it; rename it",
    ),
    "nodes without an end": (
        lambda r: r.update(nodes=10**400),
        "nodes: 100000000000000000000000000000000000000000000000000000000... is too large; must be "
        "at most 100000; correct it",
    ),
    "restarts without an end": (
        lambda r: r.update(maxRestarts=2**31),
        "maxRestarts: 2147483648 is too large; must be at most 1000; correct it",
    ),
    "shared memory in thousandths of a byte": (
        lambda r: r["resources"].update(shm="900m"),
        f"resources.shm: '900m' is not valid; {SIZE}",
    ),
    "steps that are no number": (
        lambda r: r.update(overrides={"steps": float("nan")}),
        "config: steps: got nan; allowed a whole number",
    ),
    "steps on a day": (
        lambda r: r.update(overrides={"steps": date(2026, 1, 1)}),
        "config: steps: got datetime.date(2026, 1, 1); allowed a whole number",
    ),
    "a seed of letters": (
        lambda r: r.update(overrides={"seed": "x"}),
        "config: seed: got 'x'; allowed a whole number",
    ),
    "a place of data beside the dataset": (
        lambda r: r.update(overrides={"data": {"path": "/data/mine"}}),
        "overrides.data.path: got '/data/mine'; allowed nothing: the run reads its dataset, "
        "wherever that is; name what it shall read in dataset, and remove this",
    ),
    "no seed": (
        lambda r: r.update(overrides={"seed": None}),
        "config: seed: got None; allowed a whole number",
    ),
}


def mistakes(project: Path, *names: str) -> tuple[str, ...]:
    """What is wrong with these files on the example platform."""
    with pytest.raises(ConfigError) as caught:
        run_files.load(names, platform(), {"trainer": IMAGE}, project)
    return caught.value.lines


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_one_line(tmp_path: Path, name: str) -> None:
    edit, expected = BAD[name]
    document = copy.deepcopy(RUN_FILE)
    edit(document)
    project = project_in(tmp_path)
    write_runs(project, document)
    assert mistakes(project, "llama") == (f"training/runs/llama.yaml: {expected}",)


def test_settings_that_cannot_be_read_hide_nothing_else(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    write_runs(project, RUN_FILE | {"overrides": {"steps": 0.5}, "worldSize": 7})
    assert [line.split(": got")[0] for line in mistakes(project, "llama")] == [
        "training/runs/llama.yaml: worldSize",
        "training/runs/llama.yaml: config: steps",
    ]


def test_a_path_that_no_file_can_have_is_one_line(tmp_path: Path) -> None:
    [line] = mistakes(project_in(tmp_path), "a\0.yaml")
    assert line.startswith("runs[0]: got 'a\\x00.yaml'; allowed none defined (files of")
