"""The run contract: identity, ports, shutdown budget, the record that travels with a run."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.golden.example_runs import run
from training import spec
from training.spec import Dataset, GraceBudget, Launch
from trainyard import contract, hashing


@pytest.mark.parametrize(
    "change",
    [
        {"image": "registry.example.com/trainer@sha256:" + "6" * 64},
        {"config": {"steps": 1001, "threads": 4, "batch": {"global_samples": 256}}},
        {"dataset": Dataset(name="stdlib", version="0123456789abcdef", source="stdlib")},
        {"nodes": 1},
        {"seed": 8},
        {"save_seconds": 46.0},
        {"capacity_types": ("on-demand",)},
        {"parallelism": {"data": 4, "tensor": 4}},
        {"secrets": ("hub",)},
    ],
)
def test_any_change_makes_a_new_run(change: dict[str, object]) -> None:
    assert run(**change).run_id != run().run_id


def test_a_document_is_what_the_run_file_says_whatever_the_image_and_the_tier() -> None:
    image = "registry.example.com/trainer@sha256:" + "6" * 64
    other = run(image=image, tier="production", collective_gbps=10.0)
    assert other.run_id != run().run_id and other.document_hash == run().document_hash
    data = Dataset(name="stdlib", version="0123456789abcdef", source="stdlib")
    prepared = dataclasses.replace(data, image=image)
    assert run(dataset=prepared).document_hash == run(dataset=data).document_hash
    for edit in ({"config": {"steps": 1001}}, {"nodes": 1}, {"seed": 8}, {"dataset": data}):
        assert run(**edit).document_hash != run().document_hash


def test_a_run_id_contains_name_and_version_and_names_pods() -> None:
    assert re.fullmatch(r"llama-v3-[0-9a-f]{8}", run().run_id)
    longest = "a" * (spec.RUN_ID_MAX - len("-v3-01234567"))
    pod = f"{run(name=longest).run_id}-worker-0-99-abcde"
    assert len(pod) <= 63


def test_a_name_too_long_for_its_pods_is_refused() -> None:
    with pytest.raises(ValueError, match="over 44 characters"):
        run(name="a" * 40)


@pytest.mark.parametrize("image", ["trainer:latest", "trainer", "trainer@sha256:abc"])
def test_an_image_without_a_digest_is_refused(image: str) -> None:
    with pytest.raises(ValueError, match="DIGEST"):
        run(image=image)


def test_ports_lie_in_the_documented_range_and_differ_between_runs() -> None:
    ports = {contract.rendezvous_port(f"run-v1-{i:08x}") for i in range(300)}
    assert min(ports) >= 29400 and max(ports) <= 29499
    assert len(ports) > 80
    assert contract.rendezvous_port("a") == contract.rendezvous_port("a")


@pytest.mark.parametrize("save", [0.5, 5, 45, 90])
def test_each_layer_of_a_shutdown_outlasts_the_one_inside(save: float) -> None:
    budget = GraceBudget.for_save(save)
    assert save < budget.checkpoint_deadline_s
    assert budget.checkpoint_deadline_s < budget.shutdown_timeout_s < budget.termination_grace_s
    assert budget.termination_grace_s <= 110
    assert budget.fits(120)


def test_a_save_that_outlasts_the_notice_does_not_fit() -> None:
    longest = spec.max_save_seconds(120)
    assert GraceBudget.for_save(longest).fits(120)
    assert not GraceBudget.for_save(longest + 1).fits(120)


def test_a_record_says_who_launched_it_and_from_what_only_where_that_is_known() -> None:
    unknown = run().record(stack="local", git_commit="c" * 40)
    assert (unknown["world_size"], unknown["parallelism"]) == (16, {"data": 16})
    assert not {"dirty", "launched_by", "program"} & unknown.keys()
    for dirty in (True, False):
        launch = Launch(dirty=dirty, by="ada")
        record = run().record(stack="local", git_commit="c" * 40, launch=launch)
        assert (record["dirty"], record["launched_by"]) == (dirty, "ada")
        assert record["run_id"] == unknown["run_id"]


def test_canonical_json_refuses_what_has_no_one_form() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        hashing.canonical_json(float("nan"))
