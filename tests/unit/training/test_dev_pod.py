"""The Job of a dev pod, and what is refused before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from infra.domain import dev_pods, naming
from ops.dev import pod as dev_pod
from ops.dev.pod import BadRequest, DevRequest
from tests.golden.example_runs import IMAGE, platform

ARN = "arn:aws:sts::111122223333:assumed-role/Researchers/Ada.Lovelace@example.com"


def request(**changes: Any) -> DevRequest:
    values: dict[str, Any] = {
        "user": ARN,
        "team": "research",
        "name": "main",
        "image": IMAGE,
        "gpus": 1,
        "hours": 4,
        "idle_minutes": 60,
    }
    return DevRequest(**(values | changes))


def test_dev_pod_is_queued_with_the_lowest_priority_in_its_users_name() -> None:
    job = dev_pod.job(request(), platform())
    labels = job["metadata"]["labels"]
    assert labels[naming.QUEUE_NAME] == "research"
    assert labels[naming.WORKLOAD_PRIORITY] == "best-effort-training"
    template = job["spec"]["template"]
    assert template["spec"]["priorityClassName"] == "best-effort-training"
    assert job["metadata"]["annotations"][naming.LAUNCHED_BY] == ARN
    assert template["metadata"]["annotations"][naming.LAUNCHED_BY] == ARN
    assert job["spec"]["suspend"] and job["spec"]["backoffLimit"] == 0
    assert job["spec"]["activeDeadlineSeconds"] == 4 * 3600 + 60
    assert labels[naming.MAX_EXEC_SECONDS] == str(4 * 3600 + 60)


def _terms(**changes: Any) -> dict[str, list[str]]:
    pod = dev_pod.job(request(**changes), platform())["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = required["nodeSelectorTerms"]
    return {one["key"]: one["values"] for one in term["matchExpressions"]}


def test_dev_pod_goes_to_pools_with_enough_gpus_of_the_model() -> None:
    assert _terms() == {naming.POOL: ["spot", "ondemand"]}
    assert _terms(gpu_model="a100", gpus=8)[naming.GPU_MODEL] == ["a100"]
    with pytest.raises(
        BadRequest, match="--gpu-model: got 'h200'; must be one of a100; choose one"
    ):
        dev_pod.job(request(gpu_model="h200"), platform())


def test_longest_dev_pod_stays_within_the_policys_limit() -> None:
    job = dev_pod.job(request(hours=24), platform())
    assert job["spec"]["activeDeadlineSeconds"] == 24 * 3600


def test_dev_pod_without_gpus_is_not_queued() -> None:
    job = dev_pod.job(request(gpus=0), platform())
    assert naming.QUEUE_NAME not in job["metadata"]["labels"]
    assert "suspend" not in job["spec"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert naming.GPU not in container["resources"]["requests"]


def test_names_of_users_are_valid_and_differ() -> None:
    name = dev_pods.job_name(ARN, "main")
    assert name.startswith("devpod-ada-lovelace-") and naming.is_dns_label(name)
    other = dev_pods.job_name(ARN.replace("Researchers", "Leads"), "main")
    assert other != name
    longest = dev_pods.job_name("Ü" * 300, "n" * dev_pods.NAME_MAX)
    assert naming.is_dns_label(longest) and len(longest) <= naming.DNS_LABEL_MAX - 6
    assert dev_pods.home("../../etc").startswith("home/etc-")


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"name": "No_"}, "NAME"),
        ({"hours": 24.1}, "--hours"),
        ({"hours": 0}, "--hours"),
        ({"idle_minutes": -1}, "--idle-minutes"),
        ({"gpus": 9}, "--gpus"),
        ({"gpus": -1}, "--gpus"),
        ({"image": "registry.example.com/trainer:latest"}, "--image"),
        ({"image": IMAGE.replace("registry.example.com", "registry.example.com.evil")}, "--image"),
    ],
)
def test_bad_request_names_its_option(changes: dict[str, Any], option: str) -> None:
    with pytest.raises(BadRequest) as raised:
        dev_pod.job(request(**changes), platform())
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [option]
