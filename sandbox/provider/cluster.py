"""The cluster of a configured provider, or why it is not reachable."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sandbox.provider import kubeconfig
from sandbox.provider.config import Settings
from sandbox.provider.connection import Connection, Warn
from sandbox.provider.discovery import Discovery, Resource
from sandbox.provider.errors import ApiError, ProviderError, Unreachable
from sandbox.provider.objects import Kind, Object, kind_of, name_of, namespace_of

APPLY = "application/apply-patch+yaml"

_UNREACHABLE_HINT = (
    "if the cluster was deleted, PULUMI_K8S_DELETE_UNREACHABLE=true removes its objects from "
    "the state"
)


class Cluster:
    """Objects of one cluster. Thread-safe.

    `settings.choice` None: the kubeconfig is known only after the update. Without a reachable API
    server `reason` holds the cause, and calls that need the server raise Unreachable.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reason = ""
        self.namespace = settings.namespace or "default"
        self.cancelled = threading.Event()
        self._connection = self._connect()
        self.discovery = Discovery(self._connection)

    @property
    def reachable(self) -> bool:
        return self._connection is not None

    def cancel(self) -> None:
        """Stop all waits and retries."""
        self.cancelled.set()
        if self._connection is not None:
            self._connection.close()

    def serves(self, kind: Kind) -> bool:
        """Whether the API server is reachable and serves the kind."""
        if self._connection is None:
            return False
        try:
            self.discovery.find(kind)
        except ProviderError:
            return False
        return True

    def resource(self, kind: Kind) -> Resource:
        """Return how a kind is served. Raises UnknownKind, ApiError or Unreachable."""
        self._server()
        return self.discovery.find(kind)

    def get(self, obj: Object, subresource: str = "") -> Object:
        """Return the live object of a manifest's kind, namespace and name."""
        return self._server().get(self._path(obj, subresource))

    def find(self, obj: Object) -> Object | None:
        """Return the live object, or None when it does not exist."""
        try:
            return self.get(obj)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def list(self, kind: Kind, namespace: str, **query: str) -> list[Object]:
        """Return objects of a kind; `query`: labelSelector and fieldSelector."""
        path = self.resource(kind).path(namespace)
        found = self._server().get(path, query).get("items")
        return [{**item, "kind": kind.kind} for item in found or []]

    def apply(
        self,
        manifest: Object,
        manager: str,
        *,
        force: bool,
        dry_run: bool = False,
        subresource: str = "",
        warn: Warn | None = None,
    ) -> Object:
        """Apply on the server; return the resulting or, with `dry_run`, the planned object."""
        query = {"fieldManager": manager, "fieldValidation": "Warn"}
        query["force"] = "true" if force else "false"
        if dry_run:
            query["dryRun"] = "All"
        path = self._path(manifest, subresource)
        return self._server().request("PATCH", path, query, manifest, APPLY, warn)

    def replace(self, manifest: Object, manager: str, *, dry_run: bool) -> Object:
        """Replace the live object with the same resourceVersion."""
        query = {"fieldManager": manager, "fieldValidation": "Warn"}
        if dry_run:
            query["dryRun"] = "All"
        return self._server().request("PUT", self._path(manifest), query, manifest)

    def delete(self, obj: Object, propagation: str) -> None:
        """Request the deletion of an object; do not wait for it."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        self._server().request("DELETE", self._path(obj), None, body)

    def _path(self, obj: Object, subresource: str = "") -> str:
        return self.resource(kind_of(obj)).path(namespace_of(obj), name_of(obj), subresource)

    def _server(self) -> Connection:
        if self._connection is None:
            raise Unreachable(f"the cluster cannot be reached: {self.reason}; {_UNREACHABLE_HINT}")
        return self._connection

    def _connect(self) -> Connection | None:
        choice = self.settings.choice
        if choice is None:
            self.reason = "its kubeconfig is not known yet"
            return None
        try:
            config = kubeconfig.contents(choice)
            if not self.settings.namespace:
                self.namespace = kubeconfig.default_namespace(config, choice)
            connection = Connection(kubeconfig.configuration(config, choice), self.settings.timeout)
            connection.probe()
        except ApiError as error:
            if error.code in (401, 403):
                self.reason = f"the API server refuses the kubeconfig's credentials: {error}"
                return None
            return connection
        except ProviderError as error:
            self.reason = str(error)
            return None
        return connection


def selector(labels: Mapping[str, str]) -> str:
    """Return a label selector for exact matches."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
