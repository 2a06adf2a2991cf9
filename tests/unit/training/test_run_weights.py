"""Models that a run fetches: the Job, the pods that wait for it, and who gets the token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from infra.domain import naming
from infra.domain.platform import Platform
from tests.golden.example_runs import platform, run
from training import job as of_run
from training import preparation, spec, weights
from training.needs import needs
from training.spec import RunSpec
from training.weights import WeightsFetch

HUB = "hub:acme/tiny@" + "c" * 40
S3 = "s3://models/research/tiny"
SECRETS = {"hub": ("HF_TOKEN", "OTHER_TOKEN"), "s3": ("AWS_ACCESS_KEY_ID", "WANDB_KEY")}


def with_secrets() -> Platform:
    found = platform()
    teams = {name: replace(team, secrets=SECRETS) for name, team in found.teams.items()}
    return replace(found, teams=teams)


def fetch_of(example: RunSpec) -> dict[str, Any]:
    """The container of the Job that fetches a run's model."""
    need = WeightsFetch.for_run(example)
    assert need is not None
    [main] = preparation.job(need, with_secrets())["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = main
    return found


def test_the_trainer_reads_the_folder_that_the_job_fills() -> None:
    settings, reference = weights.separate({"model": {"path": HUB, "weights": "safetensors"}})
    assert reference == HUB
    words = fetch_of(run(weights=HUB))["command"]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert given["--source"] == HUB
    assert given["--out"] == settings["model"]["path"] == "/data/models/hub/acme/tiny/" + "c" * 40
    assert settings["model"]["weights"] == "safetensors"


def test_a_folder_is_left_as_it_is() -> None:
    settings = {"model": {"path": "/data/models/mine"}}
    assert weights.separate(settings) == (settings, "")
    assert needs(run(dataset=spec.Dataset(name="web"))) == []


def test_the_token_is_given_to_the_job_alone() -> None:
    variables = {e["name"]: e for e in fetch_of(run(weights=HUB))["env"]}
    assert variables["HF_TOKEN"]["valueFrom"] == {
        "secretKeyRef": {"name": "hub", "key": "HF_TOKEN"}
    }
    assert "OTHER_TOKEN" not in variables
    rendered = of_run.submitted(run(weights=HUB), with_secrets(), "c")
    assert [m["metadata"]["name"] for m in rendered if "HF_TOKEN" in str(m)] == [
        rendered[1]["metadata"]["name"]
    ]
    assert rendered[1]["metadata"]["labels"][naming.COMPONENT] == "weights-fetch"


def test_a_job_for_s3_gets_the_credentials_of_the_runs_secrets() -> None:
    names = {e["name"] for e in fetch_of(run(weights=S3, secrets=("s3",)))["env"]}
    assert "AWS_ACCESS_KEY_ID" in names
    assert not names & {"WANDB_KEY", "HF_TOKEN"}


def test_runs_share_a_model_and_a_change_makes_another_job() -> None:
    one, same = (
        WeightsFetch.for_run(run(weights=HUB)),
        WeightsFetch.for_run(run(weights=HUB, seed=9)),
    )
    assert one == same
    other = WeightsFetch.for_run(run(weights=HUB.replace("c", "d")))
    assert one is not None and other is not None
    assert one.name != other.name
    assert run().run_id != run(weights=HUB).run_id
