"""Reading and patching a cluster as the user of a kubeconfig."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3
from kubernetes import client, config

from ops import objects
from ops.objects import Json

FIELD_MANAGER: Final = "trainyard-ops"
TIMEOUT_S: Final = 30.0


class ClusterError(Exception):
    """The cluster cannot be reached, or refuses; the text says what to do."""


class ForbiddenError(ClusterError):
    """The caller may not do this."""


class ConflictError(ClusterError):
    """The object is there already, or somebody else changed it meanwhile."""


@dataclass(frozen=True)
class Kind:
    """Where the objects of a kind are."""

    api: str
    """Group and version, as in `apiVersion`."""
    plural: str
    kind: str

    def path(self, namespace: str | None = None, name: str = "") -> str:
        """Path of the collection, of all namespaces or of one, or of one object."""
        prefix = f"/api/{self.api}" if self.api == "v1" else f"/apis/{self.api}"
        place = f"/namespaces/{namespace}" if namespace else ""
        return f"{prefix}{place}/{self.plural}" + (f"/{name}" if name else "")


class Cluster:
    """One API server. `kubeconfig` None: what kubectl would use."""

    def __init__(self, kubeconfig: Path | None, context: str | None = None) -> None:
        path = None if kubeconfig is None else str(kubeconfig)
        try:
            # The client's own annotations stop at its front door.
            self._api: Any = config.new_client_from_config(path, context)  # type: ignore[no-untyped-call]
        except (config.ConfigException, OSError) as error:
            raise ClusterError(
                f"no usable kubeconfig: {error}; name one with --kubeconfig"
            ) from None

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        """Objects with their `kind` set; none where the cluster does not know the kind.

        Raises ForbiddenError.
        """
        query = [("labelSelector", selector)] if selector else []
        answer = self._call("GET", kind.path(namespace), query)
        items = [] if answer is None else answer["items"]
        return [item | {"kind": kind.kind, "apiVersion": kind.api} for item in items]

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        """One object; None: there is none. Raises ForbiddenError."""
        return self._call("GET", kind.path(namespace, name))

    def text(
        self, path: str, query: Sequence[tuple[str, str]], timeout_s: float = TIMEOUT_S
    ) -> str | None:
        """What a path answers that is no object: a log, or a service behind it; None: it is not there.

        Raises ForbiddenError, ClusterError.
        """
        status, data = self._send("GET", path, list(query), {"Accept": "*/*"}, None, timeout_s)
        if status == 404:
            return None
        if status >= 400:
            raise _refusal(status, data, f"GET {path}")
        return bytes(data).decode(errors="replace")

    def create(self, kind: Kind, manifest: Json) -> Json:
        """Create an object. Raises ForbiddenError, also for a policy's refusal; ConflictError."""
        path = kind.path(objects.meta(manifest).get("namespace"))
        return self._written("POST", path, manifest)

    def patch(
        self, kind: Kind, name: str, change: Mapping[str, Any], namespace: str | None = None
    ) -> Json:
        """Merge a change into an object. Raises ConflictError for another `resourceVersion`."""
        return self._written("PATCH", kind.path(namespace, name), dict(change))

    def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        """Delete an object and what belongs to it; that it is gone already is as good."""
        options = {"propagationPolicy": "Background"}
        self._call("DELETE", kind.path(namespace, name), body=options)

    def _written(self, method: str, path: str, body: Json) -> Json:
        answer = self._call(method, path, [("fieldManager", FIELD_MANAGER)], body)
        if answer is None:
            raise ClusterError(f"{method} {path}: there is no such object or kind")
        return answer

    def _call(
        self, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Any = None
    ) -> Json | None:
        headers = {"Accept": "application/json"}
        if body is not None:
            merges = method == "PATCH"
            headers["Content-Type"] = f"application/{'merge-patch+' if merges else ''}json"
        status, data = self._send(method, path, query or [], headers, body, TIMEOUT_S)
        return _decoded(status, data, f"{method} {path}")

    def _send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: dict[str, str],
        body: Any,
        timeout_s: float,
    ) -> tuple[int, Any]:
        """HTTP status and body, whatever they are."""
        request = self._api.param_serialize(
            method,
            path,
            query_params=query,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._api.call_api(*request, _request_timeout=timeout_s)
            return int(answer.status), answer.read()
        except client.ApiException as error:
            return int(error.status), error.body
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"the API server does not answer: {error}") from None


def _decoded(status: int, data: Any, what: str) -> Json | None:
    """The answer's body; None for 404."""
    if status == 404:
        return None
    if status < 400:
        found: Json = json.loads(data)
        return found
    raise _refusal(status, data, what)


def _refusal(status: int, data: Any, what: str) -> ClusterError:
    try:
        message = str(json.loads(data).get("message", ""))
    except (ValueError, TypeError):
        message = ""
    kinds = {401: ForbiddenError, 403: ForbiddenError, 409: ConflictError}
    kind = kinds.get(status, ClusterError)
    return kind(f"{what}: {message or f'HTTP {status}'}")
