"""Reading and patching a cluster as the user of a kubeconfig."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml
from kubernetes import client, config

from ops import objects
from ops.objects import Json

FIELD_MANAGER: Final = "trainyard-ops"
TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 15.0
"""To reach the API server at all; who is in the wrong network shall not wait for minutes."""

_ANONYMOUS: Final = "system:anonymous"
"""Whom an API server takes a caller for who shows nothing, where it answers such callers at all."""


class ClusterError(Exception):
    """The cluster cannot be reached, or refuses; the text says what to do."""


class UnreachableError(ClusterError):
    """It does not answer now, or has too much to do; a moment later it may."""


class WebhookError(UnreachableError):
    """Whoever has a say in this, or knows its other versions, does not answer; nothing was done."""


class UnknownCallerError(ClusterError):
    """It does not accept the credentials, so that nothing can be said of rights."""


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
            with _capture_errors() as errors:
                # The client's own annotations stop at its front door.
                self._api: Any = config.new_client_from_config(path, context)  # type: ignore[no-untyped-call]
        except (config.ConfigException, OSError) as error:
            raise _kubeconfig_error(str(error)) from None
        except yaml.YAMLError as error:
            raise _kubeconfig_error(f"it is no YAML: {' '.join(str(error).split())}") from None
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise _kubeconfig_error(f"it is not as kubectl writes it ({error!r})") from None
        if errors:
            raise UnknownCallerError(f"the kubeconfig gives no credentials: {errors[0]}; {_LOG_IN}")
        if not self._api.configuration.host.startswith("http"):
            raise _kubeconfig_error("its cluster has no server")

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
            raise _http_error(status, data, f"GET {path}")
        return bytes(data).decode(errors="replace")

    def create(self, kind: Kind, manifest: Json) -> Json:
        """Create an object. Raises ForbiddenError, also for a policy's refusal; ConflictError."""
        path = kind.path(objects.meta(manifest).get("namespace"))
        return self._write("POST", path, manifest)

    def patch(
        self, kind: Kind, name: str, change: Mapping[str, Any], namespace: str | None = None
    ) -> Json:
        """Merge a change into an object. Raises ConflictError for another `resourceVersion`."""
        return self._write("PATCH", kind.path(namespace, name), dict(change))

    def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        """Delete an object and what belongs to it; that it is gone already is as good."""
        options = {"propagationPolicy": "Background"}
        self._call("DELETE", kind.path(namespace, name), body=options)

    def _write(self, method: str, path: str, body: Json) -> Json:
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
        return _decode(status, data, f"{method} {path}")

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
        timeouts = (min(CONNECT_S, timeout_s), timeout_s)
        try:
            answer = self._api.call_api(*request, _request_timeout=timeouts)
            return int(answer.status), answer.read()
        except client.ApiException as error:
            if error.status:
                return int(error.status), error.body
            raise self._unreachable(str(error.reason)) from None
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(describe_http_error(error)) from None

    def _unreachable(self, why: str) -> UnreachableError:
        server = self._api.configuration.host
        return UnreachableError(
            f"the API server at {server} does not answer: {why}; is this the cluster that you mean?"
            " kubectl config get-contexts lists them, --context names another"
        )


def _decode(status: int, data: Any, what: str) -> Json | None:
    """The answer's body; None for 404."""
    if status == 404:
        return None
    if status < 400:
        found: Json = json.loads(data)
        return found
    raise _http_error(status, data, what)


def _http_error(status: int, data: Any, what: str) -> ClusterError:
    try:
        message = str(json.loads(data).get("message", ""))
    except (ValueError, TypeError):
        message = ""
    text = f"{what}: {message or f'HTTP {status}'}"
    if status == 401 or (status == 403 and _ANONYMOUS in message):
        return UnknownCallerError(f"{text}; {_LOG_IN}")
    if status >= 500 and "webhook" in message:
        return WebhookError(f"{text}; {_WEBHOOK}")
    if status == 429 or status >= 500:
        return UnreachableError(text)
    return {403: ForbiddenError, 409: ConflictError}.get(status, ClusterError)(text)


def describe_http_error(error: urllib3.exceptions.HTTPError) -> str:
    """Why there is no answer, without the objects that found it out."""
    return re.sub(r"^HTTPS?Connection(Pool)?\([^)]*\): ", "", str(getattr(error, "reason", error)))


_LOG_IN: Final = (
    "your credentials are not there, or have expired: log in again (aws sso login where the cluster"
    " is on EKS), until `kubectl get namespaces` works"
)


_WEBHOOK: Final = (
    "the controller behind this webhook does not answer: kubectl get pods -n kueue-system, and"
    " -n jobset-system"
)


def _kubeconfig_error(why: str) -> ClusterError:
    # The client quotes the entry that lacks something, a token in the wrong place included.
    text = re.sub(r"/\{.*\}", "", why)
    return ClusterError(f"no usable kubeconfig: {text}; name one with --kubeconfig or --context")


class _ErrorCapture(logging.Handler):
    """What is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        # In a terminal the plugin has told why by itself, and the client stumbles over having no text.
        self.texts.append("its plugin failed" if "NoneType" in text else text)


@contextlib.contextmanager
def _capture_errors() -> Iterator[list[str]]:
    """What the client only logs: that a plugin of the kubeconfig gave no credentials. It goes on without."""
    handler = _ErrorCapture()
    logging.root.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logging.root.removeHandler(handler)
