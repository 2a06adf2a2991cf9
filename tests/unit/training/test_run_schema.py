"""Keys of run files: declared once in training.spec.RunKeys, and kept by the RunSpec."""

from __future__ import annotations

import dataclasses
from typing import Any

import pydantic
import pytest

from infra.domain import pools
from tests.golden.example_runs import IMAGE, RUN_FILE, platform
from training import spec
from training.run_schema import RunFile
from training.spec import Dataset, Groups, NetworkSettings, Resources, RunKeys, RunSpec

EVERY_KEY: dict[str, Any] = RUN_FILE | {
    "jobKind": "indexed-job",
    "gpuModel": "a100",
    "saveSeconds": 45,
    "secrets": ["b", "a", "b"],
    "priority": "research-training",
    "maxRestarts": 7,
    "maxHours": 12.5,
    "costCapUsd": 9000,
    "deadline": "2027-03-01T09:00:00Z",
    "continues": "llama-v6-0123abcd",
    "groups": {"min": 2, "max": 4, "spares": 1, "onDemand": 1},
}


def resolve(document: dict[str, Any]) -> RunSpec:
    return RunFile.model_validate(document).resolve(platform(), {"trainer": IMAGE}, {}, {})


def test_every_kept_key_reaches_the_spec_as_it_stands() -> None:
    found = resolve(EVERY_KEY)
    assert {one.name: getattr(found, one.name) for one in dataclasses.fields(RunKeys)} == {
        "name": "llama",
        "version": 1,
        "team": "research",
        "job_kind": "indexed-job",
        "nodes": 2,
        "processes_per_node": 8,
        "gpu_model": "a100",
        "dataset": Dataset(name="stdlib", source="stdlib"),
        "resources": Resources(cpu="80", memory="900Gi", shm="64Gi"),
        "network": NetworkSettings(),
        "save_seconds": 45.0,
        "secrets": ("a", "b"),
        "priority": "research-training",
        "max_restarts": 7,
        "max_hours": 12.5,
        "cost_cap_usd": 9000.0,
        "deadline": "2027-03-01T09:00:00Z",
        "continues": "llama-v6-0123abcd",
        "groups": Groups(min=2, max=4, spares=1, on_demand=1),
    }


def test_null_stands_for_an_absent_name_and_empty_text_does_not() -> None:
    assert resolve(RUN_FILE | {"gpuModel": None}) == resolve(RUN_FILE)
    with pytest.raises(pydantic.ValidationError):
        resolve(RUN_FILE | {"gpuModel": ""})


def test_a_key_that_is_added_later_leaves_the_ids_of_runs_without_it() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(RunSpec):
        budget: float = 0.0

    run = resolve(RUN_FILE)
    values = {one.name: getattr(run, one.name) for one in dataclasses.fields(run)}
    assert Later(**values).run_id == run.run_id
    assert Later(**values, budget=1.0).run_id != run.run_id


@pytest.mark.parametrize(
    "text", ["2027-02-30T09:00:00Z", "2027-03-01", "2027-03-01T09:00:00+01:00", "tomorrow", ""]
)
def test_a_deadline_is_a_time_in_utc(text: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        resolve(RUN_FILE | {"deadline": text})


@pytest.mark.parametrize("text", ["llama", "../other", "llama-v1-0123abcd/x", "llama-v1-0123ABCD"])
def test_a_run_continues_a_run_id_and_nothing_else(text: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        resolve(RUN_FILE | {"continues": text})


def test_runs_and_pools_have_one_limit_of_nodes() -> None:
    assert spec.NODES_MAX == pools.NODES_MAX
