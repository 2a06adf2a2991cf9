"""Extract from an object the fields that each manager applied."""

from __future__ import annotations

from sandbox.node.api import Json
from sandbox.node.managed_fields import applied_parts, without_server_fields

FIELDS: Json = {
    "f:metadata": {
        "f:labels": {".": {}, "f:pool": {}},
        "f:finalizers": {".": {}, 'v:"a/b"': {}},
    },
    "f:spec": {"f:taints": {}, "f:list": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:v": {}}}},
}
NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"pool": "spot", "other": "1"},
        "finalizers": ["a/b", "c/d"],
        "managedFields": [
            {"manager": "pulumi", "operation": "Apply", "apiVersion": "v1", "fieldsV1": FIELDS},
            {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:spec": {}}},
            {"manager": "x", "operation": "Apply", "subresource": "status", "fieldsV1": {}},
        ],
    },
    "spec": {
        "taints": [
            {"key": "spot", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        ],
        "list": [{"name": "x", "v": 1, "w": 2}, {"name": "y", "v": 3}],
        "podCIDR": "10.0.0.0/24",
    },
    "status": {"capacity": {"cpu": "1"}, "conditions": [{}], "nodeInfo": {}},
}


def test_each_manager_gets_back_just_the_fields_it_had_applied() -> None:
    ((manager, part),) = applied_parts(NODE)
    assert manager == "pulumi"
    assert part == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"pool": "spot"}, "finalizers": ["a/b"]},
        "spec": {"taints": NODE["spec"]["taints"], "list": [{"name": "x", "v": 1}]},
    }


def test_what_the_server_and_the_agent_fill_in_is_left_out() -> None:
    plain = without_server_fields(NODE)
    assert plain["metadata"].keys() == {"name", "labels", "finalizers"}
    assert plain["status"] == {"capacity": {"cpu": "1"}}
    assert [taint["key"] for taint in plain["spec"]["taints"]] == ["spot"]
