"""Installed add-ons: secure values and exact dependencies."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from infra.addons import (
    controllers,
    mpi_operator,
    training_operator,
)
from infra.addons.component import in_order, namespace
from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS
from infra.config import add_ons, arguments, parse
from infra.domain.launcher_support import MPI_JOB, PYTORCH_JOB
from infra.kubernetes.helm import merged
from infra.kubernetes.objects import Manifest
from tests.unit.infra.example_eks import stack_values

DIGEST = "@sha256:" + "1" * 64
IMAGES = {
    "trainingOperator": f"ghcr.io/kubeflow/training-v1/training-operator{DIGEST}",
    "mpiOperator": f"docker.io/mpioperator/mpi-operator{DIGEST}",
}
ON_GPU_NODES = {name: {"provided": True} for name in ("gpuOperator", "efaDevicePlugin")}
KEYLESS = {"issuer": "https://token.actions.githubusercontent.com", "subject": "me"}


def values(**changes: Any) -> dict[str, Any]:
    """Values of a stack with every controller that can be installed together."""
    found = copy.deepcopy(stack_values())
    names = ("kueue", "jobset", "kubeflowTrainer", "trainingOperator", "mpiOperator")
    found["operators"] = {name: {"provided": False} for name in (*names, "externalSecrets")}
    for name, image in IMAGES.items():
        found["operators"][name]["image"] = image
    found["operators"] |= ON_GPU_NODES
    found["signatures"] = {"keyless": KEYLESS}
    return found | changes


def plans() -> list[Installable]:
    """Plans of every add-on of the stacks in this module, including the other schedulers."""
    found = {plan.add_on: plan for plan in add_ons.args(parse(values())).plans}
    for scheduler in ("volcano", "yunikorn"):
        operators = {scheduler: {"provided": False}} | ON_GPU_NODES
        config = parse(values(scheduler=scheduler, operators=operators))
        found |= {plan.add_on: plan for plan in add_ons.args(config).plans}
    return list(found.values())


def on_gpu_nodes() -> list[Installable]:
    """Minimal add-ons for GPU nodes."""
    names = ("kueue", "devicePlugin", "dcgmExporter", "efaDevicePlugin")
    config = parse(values(operators={name: {"provided": False} for name in names}))
    return list(add_ons.args(config).plans)


PLANS = plans()
BY_NAME = {plan.add_on: plan for plan in (*on_gpu_nodes(), *PLANS)}
IDS = [plan.add_on for plan in PLANS]


def test_plans_are_sorted_topologically_whatever_their_input_order() -> None:
    a, b = (Installable(add_on="kubeflowTrainer"), Installable(add_on="jobset"))
    assert in_order([a, b]) == in_order([b, a]) == (b, a)
    assert in_order([a]) == (a,)


def test_add_on_dependencies_exist_and_form_no_cycle() -> None:
    for add_on in ADD_ONS.values():
        assert set(add_on.needs) <= set(ADD_ONS)
    everything = [Installable(add_on=name) for name in ADD_ONS]
    assert len(in_order(everything)) == len(ADD_ONS)


def test_add_ons_share_a_namespace_that_is_created_and_labelled_once() -> None:
    restricted = controllers.pod_security("restricted")
    one = Installable(add_on="devicePlugin", values={}, namespace_labels=restricted)
    other = Installable(add_on="dcgmExporter", values={})
    labels = namespace("gpu-operator", [one, other])["metadata"]["labels"]
    assert restricted.items() <= labels.items()
    wide = controllers.pod_security("privileged")
    against = Installable(add_on="dcgmExporter", values={}, namespace_labels=wide)
    with pytest.raises(ValueError, match=r"dcgmExporter requires .*enforce=privileged"):
        namespace("gpu-operator", [one, against])


@pytest.mark.parametrize("plan", PLANS, ids=IDS)
def test_add_on_namespace_enforces_a_pod_security_standard(plan: Installable) -> None:
    level = plan.namespace_labels["pod-security.kubernetes.io/enforce"]
    weaker = {"volcano", "yunikorn", "policyController"}
    assert level == ("baseline" if plan.add_on in weaker else "restricted")


def test_extra_values_are_merged_like_helm_does() -> None:
    below = {"a": {"b": 1, "c": [1]}, "d": 1}
    assert merged(below, {"a": {"c": [2]}, "e": 3}) == {"a": {"b": 1, "c": [2]}, "d": 1, "e": 3}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 1}


def at(values: Mapping[str, Any], path: str) -> Any:
    for part in path.split("."):
        values = values[part]
    return values


def amounts(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every `resources` in values, with its path."""
    found: list[tuple[str, Any]] = []
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        here = f"{path}.{key}"
        if key.endswith("resources"):
            found.append((here, inner))
        else:
            found += amounts(inner, here)
    return found


@pytest.mark.parametrize("plan", [p for p in PLANS if p.values], ids=lambda plan: plan.add_on)
def test_every_controller_has_requests_and_a_memory_limit(
    plan: Installable,
) -> None:
    found = amounts(plan.values)
    assert found
    for place, given in found:
        assert {"cpu", "memory"} <= set(given["requests"]), place
        assert given["limits"]["memory"], place


WITHOUT_CHART = [
    mpi_operator.plan(IMAGES["mpiOperator"]),
    training_operator.plan(IMAGES["trainingOperator"]),
]


def one(plan: Installable, kind: str) -> Manifest:
    (found,) = [m for m in (*plan.before, *plan.objects) if m["kind"] == kind]
    return found


@pytest.mark.parametrize("plan", WITHOUT_CHART, ids=lambda plan: plan.add_on)
def test_cluster_roles_have_no_wildcards_and_cannot_get_secrets(
    plan: Installable,
) -> None:
    rules = one(plan, "ClusterRole")["rules"]
    assert "*" not in {text for rule in rules for part in rule.values() for text in part}
    readable = [r["verbs"] for r in rules if "secrets" in r["resources"]]
    assert all("get" not in verbs for verbs in readable)
    account = one(plan, "ServiceAccount")["metadata"]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        [subject] = one(plan, kind)["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


def test_admission_policies_exempt_service_accounts_of_controllers_without_a_chart() -> None:
    for plan, known in zip(
        WITHOUT_CHART, (MPI_JOB.controllers, PYTORCH_JOB.controllers), strict=True
    ):
        account = one(plan, "ServiceAccount")["metadata"]
        assert known == (f"system:serviceaccount:{account['namespace']}:{account['name']}",)


def test_program_that_requeues_mpijobs_may_do_nothing_else() -> None:
    image = IMAGES["mpiOperator"]
    plan = mpi_operator.plan(image, IMAGES["trainingOperator"])
    own = [
        m
        for m in (*plan.before, *plan.objects)
        if m["metadata"]["name"].endswith(mpi_operator.REQUEUE)
    ]
    by_kind = {m["kind"]: m for m in own}
    assert by_kind.keys() == {
        *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment"),
        *("PodDisruptionBudget", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
    kinds = [m["kind"] for m in own]
    assert kinds.index("ValidatingAdmissionPolicyBinding") < kinds.index("ClusterRoleBinding")
    [condition] = by_kind["ValidatingAdmissionPolicy"]["spec"]["matchConditions"]
    assert condition["expression"].endswith("'system:serviceaccount:mpi-operator:mpi-requeue'")
    may = {
        (resource, verb)
        for rule in by_kind["ClusterRole"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert may == {
        *(("pods", "list"), ("nodes", "list")),
        *(("workloads", "list"), ("workloads", "patch")),
    }
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == mpi_operator.REQUEUE
    assert pod["containers"][0]["image"] == IMAGES["trainingOperator"]


def test_nothing_requeues_mpijobs_without_kueue_or_an_image() -> None:
    mpi = {"mpiOperator": {"provided": False, "image": IMAGES["mpiOperator"]}} | ON_GPU_NODES
    kueue = {"kueue": {"provided": False}, "jobset": {"provided": False}}
    image = {"trainer": f"registry.example.com/trainer{DIGEST}"}

    def installed(**changes: Any) -> bool:
        plan = next(
            p for p in add_ons.args(parse(values(**changes))).plans if p.add_on == "mpiOperator"
        )
        names = {m["metadata"]["name"] for m in plan.objects}
        return mpi_operator.REQUEUE in names

    assert installed(operators=kueue | mpi, images=image)
    assert not installed(operators=kueue | mpi, images={})


def test_stack_without_add_ons_has_no_add_on_component() -> None:
    provided = values(operators={"kueue": {"provided": True}} | ON_GPU_NODES)
    del provided["signatures"]
    assert add_ons.args(parse(provided)).plans == ()


WITH_HOOK_JOBS = ("kubePrometheusStack", "gpuOperator", "policyController")
"""Charts whose hooks are Jobs, by `helm template`."""


@pytest.mark.parametrize("name", WITH_HOOK_JOBS)
def test_charts_with_hook_jobs_are_installed_after_kueue(name: str) -> None:
    assert "kueue" in ADD_ONS[name].needs
    order = [plan.add_on for plan in in_order([Installable(add_on=n) for n in (name, "kueue")])]
    assert order == ["kueue", name]


def grafana_of(**more: Any) -> Mapping[str, Any]:
    """The values of Grafana's chart for a stack that installs it."""
    operators = {"kueue": {"provided": False}, "kubePrometheusStack": {"provided": False}}
    section = {"url": "https://grafana.example.com/x", "adminSecretName": "grafana-admin", **more}
    changed = values(operators=operators | ON_GPU_NODES, observability={"grafana": section})
    del changed["signatures"]
    plans = {plan.add_on: plan for plan in add_ons.args(parse(changed)).plans}
    found: Mapping[str, Any] = plans["kubePrometheusStack"].values["grafana"]
    return found


def test_block_volumes_are_made_for_a_prometheus_that_names_no_class_of_its_own() -> None:
    changed = copy.deepcopy(stack_values())
    assert not arguments.needs_block_volumes(parse(changed))
    changed["operators"] |= {"kubePrometheusStack": {"provided": False}} | ON_GPU_NODES
    assert arguments.needs_block_volumes(parse(changed))
    changed["observability"] = {"storageClass": "own"}
    assert not arguments.needs_block_volumes(parse(changed))


def test_grafana_opens_to_groups_of_an_issuer_only_where_the_stack_says_so() -> None:
    plain = grafana_of()
    assert "ingress" not in plain and "extraSecretMounts" not in plain
    assert not {"auth", "auth.generic_oauth"} & plain["grafana.ini"].keys()
    open_to = {
        "authUrl": "https://id.example.com/a",
        "tokenUrl": "https://id.example.com/t",
        "userinfoUrl": "https://id.example.com/u",
        "clientId": "grafana",
        "secretName": "grafana-oidc",
        "groups": ["ml", "research"],
        "adminGroups": ["platform"],
        "groupsClaim": "teams",
    }
    way = {"className": "internal", "tlsSecretName": "tls", "annotations": {"a": "b"}}
    found = grafana_of(signIn=open_to, ingress=way)
    login = found["grafana.ini"]["auth.generic_oauth"]
    assert found["grafana.ini"]["auth"] == {"disable_login_form": True}
    assert login["allowed_groups"] == "ml research platform"
    assert login["role_attribute_path"] == "contains(teams[*], 'platform') && 'Admin' || 'Viewer'"
    assert not login["allow_assign_grafana_admin"] and login["use_pkce"]
    # The value of the Secret is in no value of the release, nor in the stack's state.
    (mount,) = found["extraSecretMounts"]
    assert mount["secretName"] == "grafana-oidc"
    assert login["client_secret"] == f"$__file{{{mount['mountPath']}/client-secret}}"
    assert found["ingress"]["hosts"] == ["grafana.example.com"]
    assert found["ingress"]["tls"] == [{"secretName": "tls", "hosts": ["grafana.example.com"]}]
    assert found["ingress"]["annotations"] == {"a": "b"}


def test_grafana_reads_no_secrets_and_config_maps_of_its_namespace_only() -> None:
    grafana = grafana_of()
    assert grafana["rbac"] == {"namespaced": True}
    for sidecar in grafana["sidecar"].values():
        assert (sidecar["resource"], sidecar["searchNamespace"]) == ("configmap", "monitoring")
