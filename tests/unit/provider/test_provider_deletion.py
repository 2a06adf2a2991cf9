"""Waiting for deletions whose controller overlooks the object."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sandbox.provider import awaiters
from sandbox.provider.cluster import Cluster
from sandbox.provider.errors import NotInitialized
from sandbox.provider.objects import Object


@dataclass
class OverlookingCluster:
    """Keeps a deleted object until something about it changes."""

    live: Object | None
    cancelled: threading.Event = field(default_factory=threading.Event)
    applied: list[Object] = field(default_factory=list)

    def find(self, _: Object) -> Object | None:
        return self.live

    def apply(self, manifest: Object, manager: str, **_: Any) -> Object:
        assert manager == "trainyard-wake"
        self.applied.append(manifest)
        self.live = None
        return manifest


def _deleted(kind: str) -> Object:
    about = {"name": "racks", "uid": "1", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": about}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaiters, "WAKE_SECONDS", 0.0)


def test_a_topology_that_kueue_overlooked_is_looked_at_again() -> None:
    cluster = OverlookingCluster(_deleted("Topology"))
    awaiters.until_gone(cast(Cluster, cluster), _deleted("Topology"), 60.0, lambda _: None)
    [change] = cluster.applied
    assert change["metadata"]["uid"] == "1", "or a topology that is gone would be created again"
    assert change["metadata"]["annotations"].keys() == {awaiters.WAKE}


def test_other_objects_in_deletion_are_left_alone() -> None:
    cluster = OverlookingCluster(_deleted("LocalQueue"))
    with pytest.raises(NotInitialized, match="resource-in-use"):
        awaiters.until_gone(cast(Cluster, cluster), _deleted("LocalQueue"), 0.2, lambda _: None)
    assert not cluster.applied
