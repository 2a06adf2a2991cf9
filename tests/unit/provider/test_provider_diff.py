"""Changes between inputs, replacement by the table of fixed fields, and drift."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.provider.config import Settings
from sandbox.provider.diff import (
    Change,
    Difference,
    compare,
    merge_drift,
    must_delete_first,
    property_path,
)
from sandbox.provider.objects import AUTONAMED, Kind
from sandbox.provider.replacement_fields import replacement_paths

SETTINGS = Settings(choice=None)


def config_map(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "team"},
        **fields,
    }


def changes(
    old: dict[str, Any],
    new: dict[str, Any],
    settings: Settings = SETTINGS,
    ignored: tuple[str, ...] = (),
) -> dict[str, tuple[Change, bool]]:
    group, _, version = str(new["apiVersion"]).rpartition("/")
    forced = replacement_paths(Kind(group, version, new["kind"]), new, settings)
    found = compare(old, new, forced=forced, ignored=ignored, namespaced=True)
    return {item.property_path: (item.change, item.replaces) for item in found}


def test_equal_inputs_have_no_changes() -> None:
    assert changes(config_map(data={"a": "1"}), config_map(data={"a": "1"})) == {}


def test_each_change_is_reported_at_its_path() -> None:
    old = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 1}], "type": "A"}}
    new = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"labels": {"example.dev/x": "1"}},
        "spec": {"ports": [{"port": 2}, {"port": 3}]},
    }
    assert changes(old, new) == {
        "metadata.labels": (Change.ADD, False),
        "spec.ports[0].port": (Change.UPDATE, False),
        "spec.ports[1]": (Change.ADD, False),
        "spec.type": (Change.DELETE, False),
    }


def test_a_key_with_dots_is_quoted_in_its_path() -> None:
    assert property_path(("metadata", "labels", 'a.b/"c"', 0)) == (
        'metadata.labels["a.b/\\"c\\""][0]'
    )


def test_ignored_path_hides_only_its_subtree() -> None:
    old = config_map(data={"a": "1"}, dataset={"a": "1"})
    new = config_map(data={"a": "2"}, dataset={"a": "2"})
    assert list(changes(old, new, ignored=("data",))) == ["dataset.a"]


def test_equal_quantities_are_unchanged_but_equal_data_texts_differ() -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota"}
    assert (
        changes(
            {**quota, "spec": {"hard": {"requests.cpu": "1000m", "memory": "1024Mi"}}},
            {**quota, "spec": {"hard": {"requests.cpu": 1, "memory": "1Gi"}}},
        )
        == {}
    )
    assert list(changes(config_map(data={"max": "1000m"}), config_map(data={"max": "1"}))) == [
        "data.max"
    ]


def test_a_missing_namespace_is_the_default_one() -> None:
    old = config_map(metadata={"name": "a"})
    assert changes(old, config_map(metadata={"name": "a", "namespace": "default"})) == {}
    moved = config_map(metadata={"name": "a", "namespace": "other"})
    assert changes(old, moved) == {"metadata.namespace": (Change.UPDATE, True)}


def test_string_data_and_data_of_a_secret_are_the_same() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret"}
    old, new = {**secret, "stringData": {"a": "1"}}, {**secret, "data": {"a": "MQ=="}}
    assert changes(old, new) == {}


REPLACED = [
    ("v1", "ConfigMap", {"data": {"a": "1"}}, {"data": {"a": "2"}}),
    ("v1", "Secret", {"data": {"a": "MQ=="}}, {"data": {"a": "Mg=="}}),
    ("v1", "Secret", {"type": "a"}, {"type": "b"}),
    ("v1", "Service", {"spec": {"clusterIP": "None"}}, {"spec": {"clusterIP": "10.0.0.1"}}),
    (
        "v1",
        "PersistentVolumeClaim",
        {"spec": {"accessModes": ["A"]}},
        {"spec": {"accessModes": ["B"]}},
    ),
    ("v1", "PersistentVolumeClaim", {"spec": {"storageClassName": "a"}}, {"spec": {}}),
    (
        "v1",
        "Pod",
        {"spec": {"containers": [{"image": "a"}]}},
        {"spec": {"containers": [{"image": "b"}]}},
    ),
    ("v1", "Pod", {"spec": {"containers": []}}, {"spec": {"containers": [{"image": "b"}]}}),
    (
        "batch/v1",
        "Job",
        {"spec": {"template": {"spec": {"x": 1}}}},
        {"spec": {"template": {"spec": {}}}},
    ),
    ("batch/v1", "Job", {"spec": {"completions": 1}}, {"spec": {"completions": 2}}),
    (
        "apps/v1",
        "Deployment",
        {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
        {"spec": {"selector": {}}},
    ),
    ("apps/v1", "StatefulSet", {"spec": {"serviceName": "a"}}, {"spec": {"serviceName": "b"}}),
    ("storage.k8s.io/v1", "StorageClass", {"parameters": {"a": "1"}}, {"parameters": {"a": "2"}}),
    ("storage.k8s.io/v1", "StorageClass", {"provisioner": "a"}, {"provisioner": "b"}),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        {"roleRef": {"name": "a"}},
        {"roleRef": {"name": "b"}},
    ),
    ("v1", "Namespace", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}),
]


@pytest.mark.parametrize(("api_version", "kind", "old", "new"), REPLACED)
def test_a_fixed_field_replaces_the_object(
    api_version: str, kind: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    identity = {"apiVersion": api_version, "kind": kind}
    assert any(
        replaces for _, replaces in changes({**identity, **old}, {**identity, **new}).values()
    )


UPDATED = [
    ("v1", "ConfigMap", {"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"a": "2"}}}),
    ("v1", "Service", {"spec": {"selector": {"a": "1"}}}, {"spec": {"selector": {"a": "2"}}}),
    (
        "v1",
        "PersistentVolumeClaim",
        {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
        {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
    ),
    ("batch/v1", "Job", {"spec": {"suspend": True}}, {"spec": {"suspend": False}}),
    ("apps/v1", "Deployment", {"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        {"subjects": []},
        {"subjects": [{"name": "b"}]},
    ),
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue", {"spec": {"cohortName": "a"}}, {"spec": {}}),
]


@pytest.mark.parametrize(("api_version", "kind", "old", "new"), UPDATED)
def test_any_other_field_is_updated_in_place(
    api_version: str, kind: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    identity = {"apiVersion": api_version, "kind": kind}
    found = changes({**identity, **old}, {**identity, **new})
    assert found and not any(replaces for _, replaces in found.values())


def test_data_is_updated_in_place_where_the_provider_allows_it_and_the_object_too() -> None:
    mutable = Settings(choice=None, config_map_mutable=True, secret_mutable=True)
    for kind in ("ConfigMap", "Secret"):
        old, new = (
            config_map(data={"a": "1"}) | {"kind": kind},
            config_map(data={"a": "2"}) | {"kind": kind},
        )
        assert changes(old, new, mutable) == {"data.a": (Change.UPDATE, False)}
        frozen = {**new, "immutable": True}
        assert changes(old, frozen, mutable)["data.a"] == (Change.UPDATE, True)


def test_an_object_with_a_given_name_goes_before_its_replacement_and_an_automatic_one_after() -> (
    None
):
    replacing = [Difference(("data",), Change.UPDATE, True)]
    old = config_map()
    assert must_delete_first(old, config_map(), replacing)
    assert not must_delete_first(old, config_map(), [Difference(("x",), Change.UPDATE, False)])
    automatic = config_map(metadata={**old["metadata"], "annotations": {AUTONAMED: "true"}})
    assert not must_delete_first(old, automatic, replacing)
    renamed = config_map(metadata={"name": "b", "namespace": "team"})
    assert not must_delete_first(old, renamed, replacing)


def test_only_inputs_changed_by_others_have_drifted() -> None:
    inputs = config_map(data={"a": "1", "b": "2"})
    before = {**inputs, "metadata": {**inputs["metadata"], "uid": "u"}}
    now = config_map(data={"a": "changed", "b": "2", "c": "added"}, other=1)
    assert merge_drift(inputs, before, now) == config_map(data={"a": "changed", "b": "2"})
    without = config_map(data={"b": "2"})
    assert merge_drift(inputs, before, without) == without


def test_defaults_normalization_and_dropped_empties_are_not_drift() -> None:
    inputs = {
        "kind": "X",
        "spec": {
            "cpu": "1",
            "resources": {"limits": {"cpu": "1000m"}},
            "empty": {},
            "list": [],
            "no": False,
            "env": [{"name": "b", "value": ""}, {"name": "a", "value": "1"}],
        },
    }
    live = {
        "kind": "X",
        "spec": {
            "cpu": "1",
            "resources": {"limits": {"cpu": "1"}},
            "default": 1,
            "env": [{"name": "injected", "value": "9"}, {"name": "a", "value": "1"}, {"name": "b"}],
        },
    }
    assert merge_drift(inputs, {}, live) == inputs


def test_field_dropped_by_the_api_server_is_not_drift() -> None:
    inputs = {"kind": "X", "spec": {"unknown": 1}}
    assert merge_drift(inputs, {"kind": "X"}, {"kind": "X"}) == inputs
    assert merge_drift(inputs, inputs, {"kind": "X"}) == {"kind": "X"}


def test_a_status_given_at_creation_belongs_to_controllers_afterwards() -> None:
    inputs = {"kind": "Node", "status": {"capacity": {"cpu": "96"}}}
    live = {"kind": "Node", "status": {"capacity": {"cpu": "4"}}}
    assert merge_drift(inputs, inputs, live) == inputs


def test_manually_changed_secret_has_drifted() -> None:
    inputs = {"kind": "Secret", "stringData": {"a": "1"}}
    live = {"kind": "Secret", "data": {"a": "MQ=="}}
    assert merge_drift(inputs, live, live) == inputs
    changed = {"kind": "Secret", "data": {"a": "Mg=="}}
    assert merge_drift(inputs, live, changed) == changed


def test_empty_values_that_the_official_plugin_drops_from_its_state_are_no_changes() -> None:
    def policy(**spec: Any) -> dict[str, Any]:
        return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec}

    def priority(**fields: Any) -> dict[str, Any]:
        return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1, **fields}

    for old, new in (
        (policy(), policy(ingress=[])),
        (priority(), priority(globalDefault=False)),
    ):
        assert changes(old, new) == changes(new, old) == {}
    assert changes(priority(), priority(globalDefault=True))
    assert changes(policy(egress=[{"ports": []}]), policy(egress=[]))


def test_false_and_empty_values_that_mean_something_are_changes() -> None:
    def account(**fields: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ServiceAccount", **fields}

    assert changes(account(), account(automountServiceAccountToken=False))

    def queue(**spec: Any) -> dict[str, Any]:
        return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": spec}

    assert changes(queue(), queue(admissionChecks=[]))
    assert changes(queue(), queue(paused=False))
