"""The rules that a shutdown fits the time it gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.rules.grace import GRACE_BUDGET, GRACE_OF_RUNS
from policies.rules.model import UNKNOWN, Resource
from tests.policy.policy_examples import (
    QUEUE,
    WORKLOADS,
    cpu_pod,
    gpu_container,
    gpu_pod,
    job,
    kubernetes,
    paths,
    stack_violations,
    violations,
)
from tests.unit.snapshots import Text

COMMAND = "spec.template.spec.containers[0].command"
GRACE = "spec.template.spec.terminationGracePeriodSeconds"
ON_DEMAND_ONLY = [{"key": "dedicated", "operator": "Exists"}]


def with_command(*words: Any, grace: Any = 50, **container: Any) -> Resource:
    container = gpu_container(command=list(words), args=[], **container)
    return job(gpu_pod(containers=[container], terminationGracePeriodSeconds=grace))


def test_an_increasing_grace_budget_passes() -> None:
    assert violations(GRACE_BUDGET, job(gpu_pod())) == []


@pytest.mark.parametrize("kind", sorted(set(WORKLOADS) - {"apps/v1:DaemonSet"}))
def test_a_grace_period_above_the_notice_is_rejected_on_spot(kind: str, text: Text) -> None:
    spec = WORKLOADS[kind](gpu_pod(terminationGracePeriodSeconds=121))
    found = violations(GRACE_BUDGET, kubernetes(kind, spec, QUEUE))
    text([(v.got, v.expected) for v in found])


def test_a_long_grace_period_passes_off_spot() -> None:
    pod = gpu_pod(terminationGracePeriodSeconds=600, tolerations=ON_DEMAND_ONLY)
    assert violations(GRACE_BUDGET, job(pod)) == []


def test_the_grace_period_of_a_daemon_set_is_ignored() -> None:
    spec = WORKLOADS["apps/v1:DaemonSet"](gpu_pod(terminationGracePeriodSeconds=121))
    assert violations(GRACE_BUDGET, kubernetes("apps/v1:DaemonSet", spec)) == []


def test_a_grace_period_equal_to_the_notice_passes() -> None:
    assert violations(GRACE_BUDGET, job(gpu_pod(terminationGracePeriodSeconds=120))) == []


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--shutdown-timeout=50", "train.py"],
        ["/opt/venv/bin/torchrun", "--shutdown_timeout", "60", "train.py"],
        ["python", "-m", "torch.distributed.run", "--shutdown-timeout=50"],
        ["sh", "-c", "exec torchrun --shutdown-timeout=50 train.py"],
        ["sh", "-c", "echo it's; torchrun --shutdown-timeout 50 train.py"],
    ],
)
def test_torchrun_must_end_before_its_pod_is_killed(command: list[str]) -> None:
    assert paths(violations(GRACE_BUDGET, with_command(*command))) == [COMMAND]


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--shutdown-timeout=49", "train.py"],
        ["torchrun", "train.py"],
        ["python", "serve.py", "--shutdown-timeout=500"],
        ["torchrun", UNKNOWN],
        ["torchrun", "--shutdown-timeout=$(SECONDS_FROM_ENV)"],
    ],
)
def test_a_shorter_or_unknown_timeout_and_other_programs_pass(command: list[Any]) -> None:
    assert violations(GRACE_BUDGET, with_command(*command)) == []


def test_the_default_shutdown_timeout_of_torchrun_is_30_seconds(text: Text) -> None:
    found = violations(GRACE_BUDGET, with_command("torchrun", "train.py", grace=30))
    text(str(found[0]))
    timeout = [{"name": "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "value": "20"}]
    assert violations(GRACE_BUDGET, with_command("torchrun", "a.py", grace=30, env=timeout)) == []


def test_the_launcher_of_runs_must_end_before_its_pod_is_killed() -> None:
    words = ("python3", "-m", "trainyard.launch")
    notice = [{"name": "TRAINYARD_NOTICE_SECONDS", "value": "55"}]
    assert paths(violations(GRACE_BUDGET, with_command(*words, env=notice, grace=50))) == [COMMAND]
    assert violations(GRACE_BUDGET, with_command(*words, env=notice, grace=55)) == []
    assert violations(GRACE_BUDGET, with_command(*words, grace=50)) == []


def test_the_default_grace_period_is_30_seconds() -> None:
    container = gpu_container(command=["torchrun", "--shutdown-timeout=30", "train.py"])
    pod = gpu_pod(containers=[container])
    del pod["terminationGracePeriodSeconds"]
    assert paths(violations(GRACE_BUDGET, job(pod))) == [COMMAND]
    patch = kubernetes("batch/v1:JobPatch", WORKLOADS["batch/v1:Job"](pod))
    assert violations(GRACE_BUDGET, patch) == []


def test_an_unknown_grace_period_is_checked_on_update() -> None:
    assert violations(GRACE_BUDGET, job(gpu_pod(terminationGracePeriodSeconds=UNKNOWN))) == []


def test_a_pre_stop_sleep_counts_towards_the_grace_period(text: Text) -> None:
    words = ("torchrun", "--shutdown-timeout=45", "train.py")
    sleep = {"preStop": {"sleep": {"seconds": 5}}}
    found = violations(GRACE_BUDGET, with_command(*words, lifecycle=sleep))
    text(found[0].got)
    assert violations(GRACE_BUDGET, with_command(*words, lifecycle=sleep, grace=51)) == []


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (["sleep", "5"], 5),
        (["/bin/sh", "-c", "sync; /bin/sleep 5s; true"], 5),
        (["sleep", "$(WAIT)"], 0),
        (["./drain.sh", "5"], 0),
    ],
)
def test_a_sleeping_pre_stop_command_counts_towards_the_grace_period(
    command: list[str],
    seconds: int,
    text: Text,
) -> None:
    words = ("torchrun", "--shutdown-timeout=45", "train.py")
    hook = {"preStop": {"exec": {"command": command}}}
    found = violations(GRACE_BUDGET, with_command(*words, lifecycle=hook))
    assert len(found) == (seconds > 0)
    text([v.got for v in found])


def test_the_notice_is_the_configured_one() -> None:
    assert paths(violations(GRACE_BUDGET, job(gpu_pod()), noticeSeconds=30)) == [GRACE]


def record(**fields: Any) -> Resource:
    """The ConfigMap of a run whose checkpoint may take 40 s, unless `fields` change it."""
    run = {"grace": {"checkpoint_deadline_s": 40}, "capacity_types": ["on-demand"]} | fields
    props = {
        "metadata": {"name": "demo-v1-0a1b2c3d", "namespace": "team-research"},
        "data": {"run.json": json.dumps(run)},
    }
    return Resource(type="kubernetes:core/v1:ConfigMap", props=props, urn="urn:record")


def test_a_checkpoint_deadline_inside_the_shutdown_timeout_passes() -> None:
    assert stack_violations(GRACE_OF_RUNS, [job(gpu_pod()), record()]) == []


@pytest.mark.parametrize("deadline", [45, 60])
def test_a_checkpoint_deadline_after_the_shutdown_timeout_is_rejected(
    deadline: int, text: Text
) -> None:
    run = record(grace={"checkpoint_deadline_s": deadline})
    found = stack_violations(GRACE_OF_RUNS, [job(gpu_pod()), run])
    assert [(v.path, v.urn) for v in found] == [(COMMAND, "urn:demo")]
    text([v.expected for v in found])


@pytest.mark.parametrize("text", ["{", "[]", '{"grace": 1}', UNKNOWN])
def test_an_unreadable_run_record_is_ignored(text: Any) -> None:
    run = record()
    broken = Resource(type=run.type, props={**run.props, "data": {"run.json": text}})
    assert stack_violations(GRACE_OF_RUNS, [job(gpu_pod()), broken]) == []


def test_a_run_record_of_another_namespace_is_ignored() -> None:
    run = record(grace={"checkpoint_deadline_s": 60})
    metadata = run.props["metadata"] | {"namespace": "team-production"}
    other = Resource(type=run.type, props={**run.props, "metadata": metadata})
    assert stack_violations(GRACE_OF_RUNS, [job(gpu_pod()), other]) == []


def kueue(kind: str, name: str, spec: Any, namespace: str = "team-research") -> Resource:
    metadata = {"name": name, "namespace": namespace}
    token = f"kubernetes:kueue.x-k8s.io/v1beta2:{kind}"
    return Resource(type=token, props={"metadata": metadata, "spec": spec}, urn=f"urn:{name}")


def queues(*flavors: Resource) -> list[Resource]:
    """The LocalQueue `research` and what is behind it."""
    named = [{"name": flavor.props["metadata"]["name"]} for flavor in flavors]
    return [
        kueue("LocalQueue", "research", {"clusterQueue": "team-research"}),
        kueue("ClusterQueue", "team-research", {"resourceGroups": [{"flavors": named}]}, ""),
        *flavors,
    ]


SPOT_FLAVORS = [
    kueue("ResourceFlavor", "spot", {"tolerations": [{"key": "spot", "operator": "Exists"}]}),
    kueue("ResourceFlavor", "spot", {"nodeTaints": [{"key": "spot", "value": "true"}]}),
    kueue("ResourceFlavor", "spot", {"nodeLabels": {"trainyard.dev/capacity": "spot"}}),
]
ON_DEMAND_FLAVOR = kueue("ResourceFlavor", "ondemand", {"nodeLabels": {"a": "b"}})
LONG = job(gpu_pod(terminationGracePeriodSeconds=180, tolerations=ON_DEMAND_ONLY))


@pytest.mark.parametrize("spot", SPOT_FLAVORS)
def test_a_run_whose_queue_leads_to_spot_must_fit_the_notice(spot: Resource) -> None:
    found = stack_violations(GRACE_OF_RUNS, [LONG, *queues(ON_DEMAND_FLAVOR, spot)])
    assert [(v.path, v.urn) for v in found] == [(GRACE, "urn:demo")]


def test_a_run_whose_queue_leads_to_on_demand_only_may_exceed_the_notice() -> None:
    unused = SPOT_FLAVORS[0]
    assert stack_violations(GRACE_OF_RUNS, [LONG, *queues(ON_DEMAND_FLAVOR), unused]) == []


def test_queues_of_other_teams_and_namespaces_do_not_matter() -> None:
    to_spot = {"resourceGroups": [{"flavors": [{"name": "spot"}]}]}
    others = [
        kueue("ClusterQueue", "team-production", to_spot, ""),
        kueue("LocalQueue", "research", {"clusterQueue": "team-production"}, "team-production"),
        SPOT_FLAVORS[0],
    ]
    assert stack_violations(GRACE_OF_RUNS, [LONG, *queues(ON_DEMAND_FLAVOR), *others]) == []


def test_a_run_that_opts_in_to_spot_must_fit_the_notice() -> None:
    run = record(capacity_types=["on-demand", "spot"])
    assert paths(stack_violations(GRACE_OF_RUNS, [LONG, run])) == [GRACE]


def test_a_pod_that_tolerates_spot_itself_is_reported_once() -> None:
    pod = job(gpu_pod(terminationGracePeriodSeconds=180))
    assert paths(violations(GRACE_BUDGET, pod)) == [GRACE]
    assert stack_violations(GRACE_OF_RUNS, [pod, *queues(SPOT_FLAVORS[0])]) == []


def test_an_unqueued_cpu_pod_is_ignored() -> None:
    pod = job(cpu_pod(terminationGracePeriodSeconds=3600), labels={})
    assert stack_violations(GRACE_OF_RUNS, [pod, *queues(SPOT_FLAVORS[0])]) == []
    assert violations(GRACE_BUDGET, pod) == []
