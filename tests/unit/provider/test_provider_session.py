"""The provider's operations against a cluster in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.provider import lifecycle
from sandbox.provider.autonaming import Mode
from sandbox.provider.errors import ProviderError
from sandbox.provider.objects import Object
from sandbox.provider.properties import UNKNOWN, Secret, reveal
from sandbox.provider.session import Session
from tests.unit.provider.fake_cluster import FakeCluster, Log, refusal

PREFIX = "urn:pulumi:s::p::"
META = {"name": "a", "namespace": "team"}
CONFIG = "kubernetes:core/v1:ConfigMap"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"


def session(cluster: FakeCluster) -> Session:
    return Session(cluster, Log())  # type: ignore[arg-type]


def config_map(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": META, "data": {"a": "1"}} | fields


def check(
    cluster: FakeCluster,
    token: str,
    news: dict[str, Any],
    olds: dict[str, Any] | None = None,
    proposal: tuple[Mode, str] | None = None,
) -> dict[str, Any]:
    urn = f"{PREFIX}{token}::thing"
    return session(cluster).check(urn, "thing", olds or {}, news, b"seed", proposal)


def claim(cluster: FakeCluster, phase: str, **annotations: str) -> Object:
    obj = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "team", "annotations": annotations},
        "spec": {"storageClassName": "none"},
        "status": {"phase": phase},
    }
    cluster.put(obj)
    return obj


NAMELESS = {"apiVersion": "v1", "kind": "ConfigMap"}


def test_an_object_without_a_name_gets_one_that_is_kept_from_then_on() -> None:
    cluster = FakeCluster()
    first = check(cluster, CONFIG, NAMELESS)
    name = first["metadata"]["name"]
    assert name.startswith("thing-") and len(name) == len("thing-") + 8
    assert first["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}
    assert first["metadata"]["namespace"] == "default"
    assert check(cluster, CONFIG, NAMELESS) == first, "the seed decides"
    assert check(cluster, CONFIG, NAMELESS, olds=first) == first


def test_explicit_name_is_kept() -> None:
    checked = check(FakeCluster(), CONFIG, config_map())
    assert checked == config_map()
    assert check(FakeCluster(), CONFIG, config_map(metadata={"name": UNKNOWN}))["metadata"] == {
        "name": UNKNOWN,
        "namespace": "default",
    }


def test_the_engine_proposes_a_name_or_forbids_automatic_ones() -> None:
    proposed = check(FakeCluster(), CONFIG, NAMELESS, proposal=(Mode.ENFORCE, "proposed"))
    assert proposed["metadata"]["name"] == "proposed"
    with pytest.raises(
        ProviderError, match=r"metadata\.name: missing, and automatic naming is off"
    ):
        check(FakeCluster(), CONFIG, NAMELESS, proposal=(Mode.DISABLE, ""))


def test_a_cluster_scoped_object_gets_no_namespace() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    assert check(FakeCluster(), "kubernetes:core/v1:Node", node)["metadata"] == {"name": "n"}


def test_a_kind_is_scoped_by_the_definition_that_the_program_registers_with_it() -> None:
    cluster = FakeCluster()
    thing = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "n"}}
    token = "kubernetes:example.dev/v1:Thing"
    assert check(cluster, token, thing)["metadata"]["namespace"] == "default"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.dev"},
        "spec": {"group": "example.dev", "scope": "Cluster", "names": {"kind": "Thing"}},
    }
    check(cluster, "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition", definition)
    assert "namespace" not in check(cluster, token, thing)["metadata"]


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("kubernetes:helm.sh/v4:Chart", "cannot fetch Helm charts"),
        ("kubernetes:core/v1:ConfigMapList", "lists exist in manifests only"),
    ],
)
def test_unsupported_resources_are_rejected(token: str, reason: str) -> None:
    with pytest.raises(ProviderError, match=reason):
        check(FakeCluster(), token, {})


def test_helm_release_is_previewed_from_inputs_and_rejected_on_create() -> None:
    token, inputs = "kubernetes:helm.sh/v3:Release", {"chart": "oci://x/y", "version": "1.0.0"}
    assert check(FakeCluster(), token, inputs) == inputs
    urn, release = f"{PREFIX}{token}::operator", session(FakeCluster())
    assert release.create(urn, inputs, 0, dry_run=True).properties == inputs
    newer = inputs | {"version": "1.1.0", "namespace": "n"}
    changed = release.diff(urn, inputs, inputs, newer, []).differences
    assert [(item.property_path, item.replaces) for item in changed] == [
        ("namespace", False),
        ("version", False),
    ]
    with pytest.raises(
        ProviderError, match=r"operator: .* cannot fetch Helm charts.*`provided: true`"
    ):
        release.create(urn, inputs, 0, dry_run=False)


def test_secrets_stay_marked_through_check_and_create() -> None:
    cluster = FakeCluster()
    marked = config_map(data=Secret({"a": "hidden"}))
    assert check(cluster, CONFIG, marked) == marked
    written = session(cluster).create(f"{PREFIX}{CONFIG}::a", marked, 0, dry_run=False)
    assert written.properties["data"] == Secret({"a": "hidden"})
    assert written.properties["__inputs"]["data"] == Secret({"a": "hidden"})


def test_an_error_of_the_api_server_does_not_quote_a_secret() -> None:
    cluster = FakeCluster()
    cluster.refusals.append(refusal(422, 'data: Invalid value: "hunter2": not good'))
    with pytest.raises(ProviderError, match=r'ConfigMap team/a: data: Invalid value: "\[secret\]"'):
        session(cluster).create(
            f"{PREFIX}{CONFIG}::a", config_map(data=Secret({"a": "hunter2"})), 0, dry_run=False
        )


def create(cluster: FakeCluster, **fields: Any) -> Any:
    urn = f"{PREFIX}{CONFIG}::a"
    return session(cluster).create(urn, config_map(**fields), 0, dry_run=False)


def test_existing_object_is_not_adopted() -> None:
    cluster = FakeCluster()
    cluster.put(config_map())
    with pytest.raises(ProviderError, match="ConfigMap team/a already exists"):
        create(cluster)
    assert cluster.applied == []


def test_object_of_an_interrupted_update_is_adopted_by_its_field_manager() -> None:
    cluster = FakeCluster(upsert=True)
    entry = {"manager": "pulumi-kubernetes-0a1b2c3d", "operation": "Apply"}
    meta = {"name": "a", "namespace": "team", "managedFields": [entry]}
    cluster.put(config_map(metadata=meta))
    written = create(cluster)
    assert written.properties["__fieldManager"] == "pulumi-kubernetes-0a1b2c3d"
    assert cluster.applied[0][1] == "pulumi-kubernetes-0a1b2c3d"


def test_conflict_error_names_the_remedy() -> None:
    cluster = FakeCluster()
    cluster.refusals.append(refusal(409, 'Apply failed with 1 conflict: conflict with "kubectl"'))
    with pytest.raises(ProviderError, match="PULUMI_K8S_ENABLE_PATCH_FORCE=true"):
        create(cluster)


def test_force_annotation_takes_precedence_over_the_provider_setting() -> None:
    refusing = {"name": "a", "namespace": "t", "annotations": {"pulumi.com/patchForce": "false"}}
    cluster = FakeCluster(patch_force=True)
    create(cluster)
    create(cluster, metadata=refusing)
    assert [force for _, _, force, _ in cluster.applied] == [True, False]


def preview(cluster: FakeCluster, **fields: Any) -> Any:
    urn = f"{PREFIX}{CONFIG}::a"
    return session(cluster).create(urn, config_map(**fields), 0, dry_run=True)


def test_preview_is_a_server_side_dry_run() -> None:
    cluster = FakeCluster()
    assert preview(cluster).properties["metadata"]["uid"] == "u"
    assert cluster.applied[0][3] is True and cluster.objects == {}


@pytest.mark.parametrize(
    "error",
    [
        refusal(403, "not allowed"),
        refusal(404, "namespaces not found", kind="namespaces"),
        refusal(422, "field is immutable"),
        refusal(500, "failed calling webhook x"),
    ],
)
def test_preview_falls_back_to_the_inputs_if_the_server_cannot_plan(error: Any) -> None:
    cluster = FakeCluster()
    cluster.refusals.append(error)
    assert preview(cluster).properties == config_map()


def test_a_preview_with_unknown_values_or_kinds_or_no_cluster_shows_the_inputs() -> None:
    cluster = FakeCluster()
    assert preview(cluster, data={"a": UNKNOWN}).properties == config_map(data={"a": UNKNOWN})
    cluster.missing.add("ConfigMap")
    assert preview(cluster).properties == config_map()
    cluster.up = False
    assert preview(cluster).properties == config_map()
    assert cluster.applied == []


def test_preview_shows_validation_errors_of_the_server() -> None:
    cluster = FakeCluster()
    cluster.refusals.append(refusal(422, "spec.replicas: must be positive"))
    with pytest.raises(ProviderError, match=r"ConfigMap team/a: spec\.replicas: must be positive"):
        preview(cluster)


def test_kind_that_never_appears_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "ARRIVAL_SECONDS", 0.05)
    cluster = FakeCluster()
    cluster.missing.add("ConfigMap")
    with pytest.raises(
        ProviderError, match=r"does not serve v1/ConfigMap.*CustomResourceDefinition"
    ):
        create(cluster)


def settle(
    cluster: FakeCluster,
    phase: str,
    *,
    seconds: float = 0.0,
    annotations: Mapping[str, str] | None = None,
) -> Any:
    obj = claim(cluster, phase, **(annotations or {}))
    news = {key: value for key, value in obj.items() if key != "status"}
    urn = f"{PREFIX}{CLAIM}::c"
    found = session(cluster)._finalize(obj, news, news, "m", found_call(cluster, urn, seconds))
    return found.unready


def found_call(cluster: FakeCluster, urn: str, seconds: float) -> Any:
    return session(cluster)._call(urn, seconds, {})


def test_readiness_timeout_is_that_of_the_resource() -> None:
    assert settle(FakeCluster(), "Bound") == ()
    late = settle(FakeCluster(), "Pending", seconds=0.01)
    assert late[0] == "not ready after 0.01 s" and "the claim is Pending" in late[1]
    named = settle(FakeCluster(), "Pending", annotations={"pulumi.com/timeoutSeconds": "0.02"})
    assert named[0] == "not ready after 0.02 s"


def test_skip_await_annotation_disables_the_wait() -> None:
    assert settle(FakeCluster(), "Pending", annotations={"pulumi.com/skipAwait": "true"}) == ()


def test_wait_for_first_consumer_claim_is_not_awaited() -> None:
    cluster = FakeCluster()
    late = {"metadata": {"name": "none"}, "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.put({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **late})
    assert settle(cluster, "Pending") == ()


def test_cancelled_wait_ends_immediately() -> None:
    cluster = FakeCluster()
    cluster.cancelled.set()
    assert settle(cluster, "Pending")[0] == "cancelled while waiting until it is ready"


def read(cluster: FakeCluster, written: Any) -> Any:
    urn = f"{PREFIX}{CONFIG}::a"
    inputs = written.properties["__inputs"]
    return session(cluster).read(urn, written.identifier, written.properties, inputs)


def test_read_returns_the_object_its_drift_or_its_absence() -> None:
    cluster = FakeCluster()
    written = create(cluster)
    assert read(cluster, written).inputs == config_map()
    cluster.put(config_map(data={"a": "2", "b": "new"}))
    assert read(cluster, written).inputs == config_map(data={"a": "2"})
    cluster.objects.clear()
    assert read(cluster, written) is None
    cluster.missing.add("ConfigMap")
    assert read(cluster, written) is None


def test_an_unreachable_cluster_does_not_make_objects_look_deleted() -> None:
    cluster = FakeCluster()
    written = create(cluster)
    kept = FakeCluster(skip_update_unreachable=True)
    kept.up = False
    assert read(kept, written).properties == written.properties
    dropped = FakeCluster(delete_unreachable=True)
    dropped.up = False
    assert read(dropped, written) is None


def test_import_uses_the_live_object_without_controller_fields_as_inputs() -> None:
    cluster = FakeCluster()
    meta = {"name": "a", "namespace": "team", "uid": "u", "generation": 1}
    cluster.put(config_map(metadata=meta, status={"x": 1}))
    found = session(cluster).read(f"{PREFIX}{CONFIG}::a", "team/a", {}, {})
    assert found is not None and found.inputs == config_map()
    assert found.properties["status"] == {"x": 1}


def delete(cluster: FakeCluster, **meta: Any) -> None:
    obj = config_map(metadata={"name": "a", "namespace": "team", **meta})
    cluster.put(obj)
    stored = {**obj, "__inputs": obj, "__fieldManager": "m"}
    session(cluster).delete(f"{PREFIX}{CONFIG}::a", "team/a", stored, 0.05)


def test_deletion_propagates_to_dependents_by_default() -> None:
    cluster = FakeCluster()
    delete(cluster)
    delete(cluster, annotations={"pulumi.com/deletionPropagationPolicy": "orphan"})
    assert cluster.deleted == [("team/a", "Foreground"), ("team/a", "Orphan")]


def test_blocked_deletion_names_its_finalizers() -> None:
    with pytest.raises(
        ProviderError,
        match=r"ConfigMap team/a: not gone after 0\.05 s; waiting for its finalizers: x/y",
    ):
        delete(FakeCluster(), finalizers=["x/y"])


def test_deletion_with_skip_await_returns_immediately() -> None:
    cluster = FakeCluster()
    delete(cluster, finalizers=["x/y"], annotations={"pulumi.com/skipAwait": "true"})
    assert cluster.deleted == [("team/a", "Foreground")]


def test_create_waits_for_the_deletion_of_an_object_with_the_same_name() -> None:
    cluster = FakeCluster()
    meta = {"name": "a", "namespace": "team", "deletionTimestamp": "now", "finalizers": ["x/y"]}
    cluster.put(config_map(metadata=meta))
    with pytest.raises(ProviderError, match=r"not gone after .* its finalizers: x/y"):
        create(cluster, metadata={**META, "annotations": {"pulumi.com/timeoutSeconds": "0.05"}})
    assert cluster.applied == []

    leaving = threading.Timer(0.2, cluster.objects.clear)
    leaving.start()
    create(cluster)
    assert len(cluster.applied) == 1


def test_patch_resource_shares_an_object_and_releases_its_fields_on_delete() -> None:
    cluster = FakeCluster()
    urn = f"{PREFIX}kubernetes:core/v1:ConfigMapPatch::a"
    with pytest.raises(ProviderError, match="does not exist; a Patch resource cannot create it"):
        session(cluster).create(urn, config_map(), 0, dry_run=False)
    cluster.put(config_map())
    written = session(cluster).create(urn, config_map(), 0, dry_run=False)
    session(cluster).delete(urn, "team/a", written.properties, 0)
    manifest, manager, _, _ = cluster.applied[-1]
    assert "data" not in manifest and manager == written.properties["__fieldManager"]
    assert cluster.deleted == []


def test_patch_resource_requires_a_name() -> None:
    with pytest.raises(ProviderError, match=r"metadata\.name: missing; a Patch resource requires"):
        check(FakeCluster(), "kubernetes:core/v1:ConfigMapPatch", NAMELESS)


def test_ignored_field_keeps_its_value_and_its_owner() -> None:
    cluster = FakeCluster()
    theirs = {"manager": "other", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}}
    meta = {"name": "a", "namespace": "team", "managedFields": [theirs]}
    cluster.put(config_map(metadata=meta, data={"a": "live", "b": "live"}))
    stored = {**config_map(), "__inputs": config_map(), "__fieldManager": "m"}
    news = config_map(data={"a": "1", "b": "1", "c": "new"})
    urn = f"{PREFIX}{CONFIG}::a"
    session(cluster).update(urn, stored, news, ["data.a", "data.b"], 0, dry_run=False)
    assert cluster.applied[-1][0]["data"] == {"a": "live", "c": "new"}


def test_a_new_status_given_by_the_program_is_applied_to_the_status_too() -> None:
    cluster = FakeCluster()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"cpu": "1"}}
    cluster.put(node)
    stored = {**node, "__inputs": node, "__fieldManager": "m"}
    urn = f"{PREFIX}kubernetes:core/v1:Node::n"
    session(cluster).update(urn, stored, node, [], 0, dry_run=False)
    assert len(cluster.applied) == 1
    session(cluster).update(urn, stored, {**node, "status": {"cpu": "2"}}, [], 0, dry_run=False)
    assert len(cluster.applied) == 3


def test_state_is_json_serializable() -> None:
    json.dumps(reveal(create(FakeCluster()).properties))


def test_a_creation_is_repeated_while_its_quota_counts_others() -> None:
    cluster = FakeCluster()
    busy = (
        'Operation cannot be fulfilled on resourcequotas "training": the object has been modified'
    )
    cluster.refusals += [refusal(409, busy), refusal(409, busy)]
    assert create(cluster).identifier == "team/a" and not cluster.refusals
