"""Rendered admission policies; tests/sandbox tries their effect on a real API server."""

from __future__ import annotations

import re

import pytest

from infra.addons.registry import ADD_ONS
from infra.config import arguments, parse
from infra.domain import launcher_support, naming
from infra.domain.scheduler import Scheduler
from infra.domain.tier import DEFAULT_PRIORITIES
from infra.kubernetes import controller_accounts, pod_templates
from infra.kubernetes.admission_policy import text
from infra.queueing import priorities
from infra.queueing.backends import backend
from infra.sections.types import repository_of
from infra.tenancy import admission
from infra.tenancy.admission import pods
from infra.tenancy.admission import runs as ranks
from tests.golden.example_runs import IMAGE, platform, run_of
from tests.golden.example_runs import stack_values as example
from training.launchers import LAUNCHERS

DIGEST = "sha256:" + "a" * 64
ARGS = arguments.admission(parse(example()))
POLICIES = {manifest["metadata"]["name"]: manifest for manifest in admission.policies(ARGS)}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_applies_to_all_team_namespaces_and_fails_closed(name: str) -> None:
    spec = POLICIES[name]["spec"]
    assert spec["failurePolicy"] == "Fail"
    selector = spec["matchConstraints"]["namespaceSelector"]
    assert selector["matchExpressions"] == [{"key": naming.TEAM, "operator": "Exists"}]
    assert "matchLabels" not in selector


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_message_is_one_line_with_a_remedy(name: str) -> None:
    for validation in POLICIES[name]["spec"].get("validations", []):
        message = validation["message"]
        assert "\n" not in message
        assert len(message) < 500
        assert re.search("[;,]", message), message


def test_pod_rules_cover_every_workload_kind_that_creates_pods() -> None:
    seen = {
        name
        for name, manifest in POLICIES.items()
        if all(
            rule in manifest["spec"]["matchConstraints"]["resourceRules"]
            for rule in pod_templates.everything_with_pods()
        )
    }
    about_pods = (
        *("queue", "placement", "requests", "volumes"),
        *("images", "environment", "priority", "labels", "dev-pods"),
    )
    assert seen == {f"trainyard-{name}" for name in about_pods}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_creates_a_kind_that_queues_manage(launcher: str) -> None:
    manifest = LAUNCHERS[launcher].render(run_of(launcher), platform())[-1]
    assert manifest["kind"] in pod_templates.RUN_KINDS
    group = manifest["apiVersion"].rpartition("/")[0]
    matched = {g for rule in pod_templates.runs() for g in rule["apiGroups"]}
    assert group in matched


ALLOWED = ("registry.example.com", "ghcr.io/acme/trainer")


@pytest.mark.parametrize(
    "image",
    [
        f"registry.example.com/trainer@{DIGEST}",
        f"registry.example.com/deep/er/trainer:v1@{DIGEST}",
        f"ghcr.io/acme/trainer@{DIGEST}",
        f"ghcr.io/acme/trainer:v1@{DIGEST}",
        f"ghcr.io/acme/trainer/variant@{DIGEST}",
    ],
)
def test_image_with_digest_from_an_allowed_registry_matches(image: str) -> None:
    assert re.fullmatch(pods.pattern(ALLOWED), image)


@pytest.mark.parametrize(
    "image",
    [
        "registry.example.com/trainer:v1",
        "registry.example.com/trainer",
        f"registry.example.com:5000/trainer@{DIGEST}",
        f"registry.example.com.evil.org/trainer@{DIGEST}",
        f"registryxexample.com/trainer@{DIGEST}",
        f"evil.org/registry.example.com/trainer@{DIGEST}",
        f"ghcr.io/acme/trainers@{DIGEST}",
        f"ghcr.io/acme@{DIGEST}",
        f"registry.example.com/trainer@{DIGEST}0",
        f"registry.example.com/trainer@{DIGEST[:-1]}",
        f"registry.example.com/a@b@{DIGEST}",
        "",
    ],
)
def test_other_images_do_not_match(image: str) -> None:
    assert not re.fullmatch(pods.pattern(ALLOWED), image)


def test_without_a_registry_no_image_matches() -> None:
    for image in ("", IMAGE, f"a@{DIGEST}"):
        assert not re.search(pods.pattern(()), image)


def test_allowed_registries_default_to_those_of_the_images() -> None:
    assert ARGS.registries == ("registry.example.com/trainer",)
    named = parse(example() | {"registries": ["registry.example.com"]})
    assert arguments.admission(named).registries == ("registry.example.com",)
    assert arguments.admission(parse(example() | {"images": {}})).registries == ()


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        (
            f"registry.example.com:5000/team/trainer:v1@{DIGEST}",
            "registry.example.com:5000/team/trainer",
        ),
        (f"trainer@{DIGEST}", "trainer"),
        ("sandbox.trainyard.dev/trainer@source", "sandbox.trainyard.dev/trainer"),
    ],
)
def test_repository_is_the_image_without_tag_and_digest(image: str, repository: str) -> None:
    assert repository_of(image) == repository


def test_tier_may_use_its_priority_class_and_lower_ones() -> None:
    assert ranks.allowed(priorities.PRIORITIES, DEFAULT_PRIORITIES) == {
        "production": ["best-effort-training", "production-training", "research-training"],
        "research": ["best-effort-training", "research-training"],
    }


@pytest.mark.parametrize(
    ("operator", "accounts"),
    [
        ("kueue", controller_accounts.KUEUE),
        ("jobset", launcher_support.JOBSET.controllers),
        ("kubeflowTrainer", launcher_support.TRAIN_JOB.controllers),
        ("volcano", backend(Scheduler.VOLCANO).binders[1:]),
        ("yunikorn", controller_accounts.YUNIKORN),
        ("trainingOperator", launcher_support.PYTORCH_JOB.controllers),
        ("mpiOperator", launcher_support.MPI_JOB.controllers),
    ],
)
def test_installed_operator_is_exempt_in_its_own_namespace(
    operator: str, accounts: tuple[str, ...]
) -> None:
    namespace = ADD_ONS[operator].namespace
    assert all(a.startswith(f"system:serviceaccount:{namespace}:") for a in accounts)


def test_text_is_escaped_in_cel_expressions() -> None:
    assert text("it's \\ here") == "'it\\'s \\\\ here'"
