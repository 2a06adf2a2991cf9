"""Platform validation: quota, network isolation and expected values of its checks."""

from __future__ import annotations

import copy
import dataclasses
import json
import shlex
from typing import Any

import pytest

from infra.config import parse, platform_record
from infra.config.arguments import validation as arguments
from infra.domain import naming, quantity
from infra.domain.pools import NodePool
from infra.domain.scheduler import Scheduler
from infra.validation import component, jobs
from infra.validation.component import ValidationArgs
from infra.validation.jobs import TemplateContext
from ops.ready import stack_facts
from tests.golden.example_runs import IMAGE, scheduler_values, stack_values
from tests.unit.infra.gpu_pools import CUT, ROCE, SERVED, SLICED, gpu_pool
from trainer.validation.__main__ import GANG_CHECKS, WAITS
from trainer.validation.consistency import Expected


def args(section: dict[str, Any] | None = None, **stack_facts: Any) -> ValidationArgs:
    """Validation arguments of the example stack."""
    config = parse(stack_values() | {"validation": section or {}} | stack_facts)
    found = arguments(config, platform_record.platform(config, "example"), {"trainer": IMAGE})
    assert found
    return found


def templates(found: ValidationArgs) -> dict[str, dict[str, Any]]:
    """CronJobs by name."""
    return {one["metadata"]["name"]: one for one in component.templates(found)}


def pod(template: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = template["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def option(template: dict[str, Any], name: str) -> str:
    """The value of an option of the check's command."""
    words: list[str] = pod(template)["containers"][0]["command"]
    return next(w.partition("=")[2] for w in words if w.startswith(f"--{name}="))


def pools(**changed: Any) -> list[dict[str, Any]]:
    """The example's pools, the first one changed."""
    first, *others = copy.deepcopy(stack_values()["nodePools"])
    return [first | changed, *others]


def test_image_supports_every_requested_check() -> None:
    checks = {"smoke", *GANG_CHECKS, *WAITS}
    for template in templates(args()).values():
        command = pod(template)["containers"][0]["command"]
        assert command[:3] == ["python", "-m", "trainer.validation"]
        assert command[3] in checks
        if command[3] not in WAITS:
            Expected.from_json(option(template, "expect"))


def test_weekly_checks_run_on_permanent_nodes_only() -> None:
    found = templates(args({"weekly": True}, nodePools=pools(min=2)))
    started = {name for name, one in found.items() if not one["spec"]["suspend"]}
    assert started == {"smoke-ondemand", "collective-ondemand"}


def test_check_requests_fit_whole_nodes_of_its_pool() -> None:
    found = args(nodePools=pools(min=3))
    for name, template in templates(found).items():
        if "queueing" in name:
            continue
        [pool] = [p for p in found.gpu_pools if name.endswith(p.name)]
        spec, resources = pod(template), pod(template)["containers"][0]["resources"]
        assert resources["requests"] == resources["limits"]
        assert resources["requests"][naming.GPU] == "8"
        assert quantity.millicores(resources["requests"]["cpu"]) <= pool.node_quota["cpu"]
        assert quantity.bytes_(resources["requests"]["memory"]) <= pool.node_quota["memory"]
        assert spec["nodeSelector"][naming.POOL] == pool.name
        assert spec["tolerations"] == pool.tolerations()
        several = name.startswith(("collective", "train-multi"))
        assert (naming.EFA in resources["requests"]) is several


@pytest.mark.parametrize(
    ("least", "most", "nodes"),
    [(0, 4, (1, 2, 1, 2)), (3, 4, (3, 3, 1, 2)), (1, 1, (1, 1, 1, None))],
)
def test_every_permanent_node_is_checked(
    least: int, most: int, nodes: tuple[int | None, ...]
) -> None:
    small = [team | {"guaranteed": {}} for team in stack_values()["teams"]]
    found = templates(args(nodePools=pools(min=least, max=most), teams=small))
    kinds = ("smoke", "collective", "train-single", "train-multi")
    for kind, count in zip(kinds, nodes, strict=True):
        template = found.get(f"{kind}-ondemand")
        if count is None or template is None:
            assert template is None and count is None
            continue
        job = template["spec"]["jobTemplate"]["spec"]
        assert (job["parallelism"], job["completions"]) == (count, count)


def test_simulated_nodes_are_not_checked_for_hardware() -> None:
    simulated = [
        p | {"nodes": "process", "min": p["max"], "network": "tcp"}
        for p in pools(max=2)
        if p.get("workload") != "cpu"
    ]
    simulated[1] |= {"max": 4, "min": 4}
    template = templates(
        args(nodePools=simulated, storage={"checkpoints": "1Gi", "datasets": "1Gi"})
    )["smoke-ondemand"]
    assert option(template, "device") == "cpu"
    assert json.loads(option(template, "expect")) == {"mtu": 65536}  # of loopback


def variables(template: dict[str, Any]) -> dict[str, str]:
    """Literal environment variables of the check's container."""
    return {e["name"]: e["value"] for e in pod(template)["containers"][0]["env"] if "value" in e}


def of_pools(*found: NodePool) -> dict[str, dict[str, Any]]:
    """Templates of these pools by name."""
    made = jobs.templates(found, TemplateContext(image=IMAGE))
    return {one["metadata"]["name"]: one for one in made}


def test_collective_transport_follows_the_network_of_the_pool() -> None:
    found = of_pools(gpu_pool(), ROCE)
    env = variables(found["collective-ondemand"])
    assert env["FI_PROVIDER"] == "efa" and env["NCCL_DEBUG"] == "INFO"
    assert variables(found["train-multi-ondemand"])["NCCL_DEBUG"] == "WARN"
    assert "NCCL_DEBUG" not in variables(found["smoke-ondemand"])
    assert json.loads(option(found["collective-ondemand"], "expect"))["mtu"] == 9001
    roce = found["collective-own"]
    assert variables(roce)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert pod(roce)["containers"][0]["resources"]["limits"]["rdma/hca"] == "1"
    wanted = json.loads(option(roce, "expect"))
    assert wanted["mtu"] == 9000 and wanted["fabric_devices"] == 2 and wanted["transport"] == "ib"


@pytest.mark.parametrize("pool", [SLICED, SERVED, CUT], ids=lambda pool: str(pool.name))
def test_shared_gpus_are_checked_by_one_share_without_a_gang(pool: NodePool) -> None:
    found = of_pools(pool)
    assert set(found) == {f"smoke-{pool.name}", f"train-single-{pool.name}"}
    for template in found.values():
        assert option(template, "processes") == "1"
        assert pod(template)["containers"][0]["resources"]["requests"][naming.GPU] == "1"


@pytest.mark.parametrize("pool", [SLICED, SERVED, CUT], ids=lambda pool: str(pool.name))
def test_stack_facts_mark_a_pool_without_gangs(pool: NodePool) -> None:
    found = args()
    changed = dataclasses.replace(
        found, platform=dataclasses.replace(found.platform, pools=(pool,))
    )
    [known] = stack_facts.parse(component.stack_facts(changed)["data"][stack_facts.KEY]).pools
    assert pool.sharing and known.no_gang_reason.startswith(
        f"its GPUs are shared ({pool.sharing.mode.value})"
    )
    whole = stack_facts.parse(component.stack_facts(found)["data"][stack_facts.KEY]).pools
    assert {one.no_gang_reason for one in whole if one.gpu} == {""}


@pytest.mark.parametrize("scheduler", [s for s in Scheduler if s is not Scheduler.KUEUE])
def test_other_schedulers_have_no_validation_queue(scheduler: Scheduler) -> None:
    config = parse(scheduler_values(scheduler) | {"validation": {}})
    found = arguments(config, platform_record.platform(config, "example"), {"trainer": IMAGE})
    assert found and not found.queued
    for template in templates(found).values():
        assert naming.QUEUE_NAME not in template["spec"]["jobTemplate"]["metadata"]["labels"]
    assert not set(templates(found)) & set(WAITS)


def test_commands_are_safe_for_shell_and_kubelet_expansion() -> None:
    """The kubelet expands `$(...)`: any other `$(` in a command must be escaped."""
    for template in templates(args()).values():
        command = pod(template)["containers"][0]["command"]
        assert shlex.split(shlex.join(command)) == command
        names = {e["name"] for e in pod(template)["containers"][0]["env"]}
        for word in command:
            for part in word.split("$(")[1:]:
                assert part.partition(")")[0] in names
