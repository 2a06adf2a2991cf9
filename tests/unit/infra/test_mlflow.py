"""MLflow's server in the cluster: a restricted pod that teams reach, and a URI that their runs may name."""

from __future__ import annotations

import copy
from typing import Any

from infra.addons import mlflow
from infra.addons.model import Installable
from infra.cli.render import Record, render
from infra.config import add_ons, parse
from infra.domain import naming
from tests.golden.example_runs import platform
from tests.unit.infra.example_eks import stack_values
from training.deployment.network_policy_checks import check_report

IMAGE = "ghcr.io/mlflow/mlflow@sha256:" + "1" * 64
INSTALLED = {"mlflow": {"provided": False, "image": IMAGE}}


def values(**operators: Any) -> dict[str, Any]:
    found = copy.deepcopy(stack_values())
    found["operators"] = {**found.get("operators", {}), **operators}
    return found


def plan(**changes: Any) -> Installable:
    config = parse(values(**INSTALLED) | changes)
    [found] = [one for one in add_ons.args(config).plans if one.add_on == "mlflow"]
    return found


def one(found: Installable, kind: str) -> dict[str, Any]:
    [manifest] = [m for m in (*found.before, *found.objects) if m["kind"] == kind]
    return manifest


def rendered(**operators: Any) -> dict[str, Record]:
    return {record["name"]: record for record in render("example", values(**operators))}


def test_the_pod_is_restricted_and_keeps_what_it_has_on_its_volume() -> None:
    found = plan()
    assert found.namespace_labels["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = one(found, "Deployment")["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == IMAGE
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    written = [word for word in container["command"] if "/data/" in word]
    assert [word.partition("=")[0] for word in written] == [
        "--backend-store-uri",
        "--artifacts-destination",
    ]
    claim = one(found, "PersistentVolumeClaim")
    assert claim["metadata"]["name"] == pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim["spec"]["storageClassName"] == naming.BLOCK_STORAGE_CLASS


def test_the_service_leads_to_the_pods_by_the_name_of_the_uri() -> None:
    found = plan()
    service = one(found, "Service")
    about = service["metadata"]
    [port] = service["spec"]["ports"]
    assert f"http://{about['name']}.{about['namespace']}.svc:{port['port']}" == naming.MLFLOW_URI
    labels = one(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_only_teams_reach_it_and_it_reaches_nothing() -> None:
    spec = one(plan(), "NetworkPolicy")["spec"]
    [rule] = spec["ingress"]
    assert rule == {
        "from": [
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": naming.TEAM, "operator": "Exists"}]
                }
            }
        ],
        "ports": [{"protocol": "TCP", "port": naming.MLFLOW_PORT}],
    }
    assert (spec["policyTypes"], spec["egress"]) == (["Ingress", "Egress"], [])


def test_teams_of_a_stack_with_a_server_reach_it_and_others_do_not() -> None:
    with_server = {name for name in rendered(**INSTALLED) if name.endswith("-allow-mlflow")}
    assert len(with_server) == len(values()["teams"])
    assert not [name for name in rendered() if "mlflow" in name]


def test_block_volumes_are_made_for_it() -> None:
    def classes(**operators: Any) -> list[str]:
        records = rendered(**operators).values()
        found = [r["inputs"] for r in records if r["type"].endswith(":StorageClass")]
        return [one["metadata"]["name"] for one in found]

    assert naming.BLOCK_STORAGE_CLASS in classes(**INSTALLED)
    assert naming.BLOCK_STORAGE_CLASS not in classes()


def test_a_run_may_name_the_server_of_its_stack() -> None:
    own = platform(operators=values(**INSTALLED)["operators"])
    assert own.tracking_server == naming.MLFLOW_URI
    for uri in (naming.MLFLOW_URI, f"{naming.MLFLOW_URI}/"):
        assert not list(check_report({"report": {"mlflow": uri}}, own))
        [issue] = check_report({"report": {"mlflow": uri}}, platform())
        assert issue.code == "unreachable" and naming.MLFLOW_URI not in issue.valid
    [issue] = check_report({"report": {"mlflow": "http://mlflow.example.com"}}, own)
    assert issue.valid.endswith(f", or {naming.MLFLOW_URI}")


def test_the_version_of_the_server_is_the_one_that_is_tried() -> None:
    from tests.trainer.test_mlflow_server import REQUIREMENTS

    assert f"mlflow=={mlflow.MLFLOW.version}" in REQUIREMENTS.read_text()
    assert mlflow.MLFLOW.images[0].tag == f"v{mlflow.MLFLOW.version}"
