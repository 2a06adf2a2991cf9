"""In-memory cluster with what the provider's operations use."""

from __future__ import annotations

import copy
import threading
from typing import Any

from sandbox.provider.cluster import Cluster
from sandbox.provider.config import Settings
from sandbox.provider.discovery import Discovery, Resource
from sandbox.provider.errors import ApiError, UnknownKind
from sandbox.provider.objects import Kind, Object, kind_of, object_id


class Log:
    """Collects what the user would read."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.statuses: list[str] = []

    def warning(self, urn: str, text: str) -> None:
        self.warnings.append(text)

    def status(self, urn: str, text: str) -> None:
        self.statuses.append(text)


class FakeCluster(Cluster):
    """Stores what is applied. `missing` are kinds that it does not serve, `refusals` the errors
    that the next applies get, `applied` every apply: (object, manager, force, dry run)."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(choice=None, **settings)
        self.reason = ""
        self.namespace = "default"
        self.cancelled = threading.Event()
        self.discovery = Discovery(None)
        self.up = True
        self.missing: set[str] = set()
        self.objects: dict[tuple[str, str], Object] = {}
        self.refusals: list[ApiError] = []
        self.applied: list[tuple[Object, str, bool, bool]] = []
        self.deleted: list[tuple[str, str]] = []

    @property
    def reachable(self) -> bool:
        return self.up

    def serves(self, kind: Kind) -> bool:
        return self.up and kind.kind not in self.missing

    def resource(self, kind: Kind) -> Resource:
        if kind.kind in self.missing:
            raise UnknownKind(kind)
        return Resource(kind, kind.kind.lower() + "s", self.discovery.namespaced(kind))

    def put(self, obj: Object) -> None:
        self.objects[self._key(obj)] = copy.deepcopy(obj)

    def find(self, obj: Object) -> Object | None:
        self.resource(kind_of(obj))
        found = self.objects.get(self._key(obj))
        return copy.deepcopy(found)

    def list(self, kind: Kind, namespace: str, **query: str) -> list[Object]:
        return [obj for (name, _), obj in self.objects.items() if name == kind.kind]

    def apply(
        self,
        manifest: Object,
        manager: str,
        *,
        force: bool,
        dry_run: bool = False,
        subresource: str = "",
        warn: Any = None,
    ) -> Object:
        if self.refusals:
            raise self.refusals.pop(0)
        self.applied.append((copy.deepcopy(manifest), manager, force, dry_run))
        live = {**copy.deepcopy(manifest), "metadata": {"uid": "u", **manifest["metadata"]}}
        if not dry_run:
            self.put(live)
        return live

    def delete(self, obj: Object, propagation: str) -> None:
        self.deleted.append((object_id(obj), propagation))
        live = self.objects.get(self._key(obj))
        if live is not None and not live["metadata"].get("finalizers"):
            del self.objects[self._key(obj)]

    def _key(self, obj: Object) -> tuple[str, str]:
        return str(obj["kind"]), object_id(obj)


def refusal(code: int, message: str, **details: Any) -> ApiError:
    return ApiError(code, {"message": message, "details": details})
