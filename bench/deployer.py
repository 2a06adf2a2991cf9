"""An account for a deployment, whose requests the API server counts by themselves.

Its metrics do not name users. They name flow schemas, which choose by user: this account has its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from bench.api import Api
from bench.embedded import Embedded

NAME: Final = "bench-deployer"
_NAMESPACE: Final = "default"
_TOKEN_S: Final = 86_400
_COUNT: Final = re.compile(
    rf'^apiserver_flowcontrol_dispatched_requests_total\{{flow_schema="{NAME}".*\}} (\S+)$',
    re.MULTILINE,
)
_RBAC: Final = "rbac.authorization.k8s.io"


def create(cluster: Embedded) -> str:
    """Create the account with all rights; return its kubeconfig, which holds for a day."""
    api = Api(cluster.kubeconfig)
    for manifest in _manifests():
        api.apply(manifest)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_S},
    }
    path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/{NAME}/token"
    token = api.post(path, request)["status"]["token"]
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    file = cluster.home / "deployer.kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config))
    return str(file)


def requests(api: Api) -> float:
    """Return the number of requests that the account has made."""
    return sum(float(found) for found in _COUNT.findall(api.text("/metrics")))


def _manifests() -> list[dict[str, Any]]:
    account = {"name": NAME, "namespace": _NAMESPACE}
    everything = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [
            {
                "verbs": ["*"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "clusterScope": True,
                "namespaces": ["*"],
            }
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", **account}],
        },
        {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": NAME},
            "spec": {
                "priorityLevelConfiguration": {"name": "exempt"},
                "matchingPrecedence": 100,
                "rules": [everything],
            },
        },
    ]
