"""Minimal Kubernetes API client that reads and writes objects as plain JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml
from kubernetes import client, config

from infra.domain import naming
from ops import objects
from ops.objects import Json

FIELD_MANAGER: Final = "trainyard-ops"
TIMEOUT_S: Final = 30.0
WATCH_S: Final = 30.0
"""Seconds after which the server ends a watch: so long a lost connection may not be noticed."""
CONNECT_S: Final = 15.0
"""Connection timeout, short so that a caller in the wrong network fails fast."""

_RETRIES: Final = urllib3.Retry(3, read=0)
"""A lost connection is made again. What was not answered in time is not asked for once more: the caller waits for
it, as for the log of a kubelet that has stopped."""

_ANONYMOUS: Final = "system:anonymous"
"""User of requests without credentials, where the API server accepts them."""


class ClusterError(Exception):
    """The cluster is unreachable or rejects a request; the text says what to do."""


class UnreachableError(ClusterError):
    """The API server does not answer or is overloaded; a retry may succeed."""


class WebhookError(UnreachableError):
    """An admission or conversion webhook does not answer; nothing was changed."""


class UnknownCallerError(ClusterError):
    """The API server does not accept the credentials (401, or anonymous)."""


class ForbiddenError(ClusterError):
    """The caller lacks the permission, or an admission policy denies the request."""


class ConflictError(ClusterError):
    """The object exists already, or was changed concurrently."""


class QuotaBusyError(UnreachableError):
    """The API server could not count the object against a quota, because others were created; nothing was."""


@dataclass(frozen=True)
class Kind:
    """API coordinates of a kind."""

    api: str
    """Group and version, as in `apiVersion`."""
    plural: str
    kind: str

    def path(self, namespace: str | None = None, name: str = "") -> str:
        """Return the path of a collection, in all namespaces or one, or of one object."""
        prefix = f"/api/{self.api}" if self.api == "v1" else f"/apis/{self.api}"
        place = f"/namespaces/{namespace}" if namespace else ""
        return f"{prefix}{place}/{self.plural}" + (f"/{name}" if name else "")


class Cluster:
    """One API server. `kubeconfig`: its path or content.

    None: as kubectl resolves it, also in a pod with a service account.
    """

    def __init__(self, kubeconfig: Path | Json | None, context: str | None = None) -> None:
        try:
            with _capture_errors() as errors:
                self._api = _connect(kubeconfig, context)
        except (config.ConfigException, OSError) as error:
            raise _kubeconfig_error(str(error)) from None
        except yaml.YAMLError as error:
            raise _kubeconfig_error(f"it is not YAML: {' '.join(str(error).split())}") from None
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise _kubeconfig_error(f"unexpected structure ({error!r})") from None
        if errors:
            raise _no_credentials(errors[0])
        if not self._api.configuration.host.startswith("http"):
            raise _kubeconfig_error("the cluster of its context has no server")

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        """List objects with their `kind` set; empty if the cluster does not have the kind.

        Raises ForbiddenError.
        """
        return self.listing(kind, namespace, selector)[0]

    def listing(
        self, kind: Kind, namespace: str | None = None, selector: str = ""
    ) -> tuple[list[Json], str]:
        """Return the objects as `items` does, and the version from which `watch` goes on; empty: no such kind."""
        query = [("labelSelector", selector)] if selector else []
        answer = self._call("GET", kind.path(namespace), query)
        if answer is None:
            return [], ""
        found = [item | {"kind": kind.kind, "apiVersion": kind.api} for item in answer["items"]]
        return found, str((answer.get("metadata") or {}).get("resourceVersion") or "")

    def watch(
        self, kind: Kind, namespace: str | None, selector: str, version: str
    ) -> Iterator[Json]:
        """Yield events of a list after a version of it, for WATCH_S. Raises ForbiddenError, ClusterError."""
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", f"{WATCH_S:.0f}"),
            *([("labelSelector", selector)] if selector else []),
        ]
        path = kind.path(namespace)
        headers = {"Accept": "application/json"}
        answer = self._request("GET", path, query, headers, timeout_s=WATCH_S + CONNECT_S)
        if answer.status >= 400:
            raise _http_error(answer.status, answer.read(), f"GET {path}")
        try:
            for line in answer.response:
                event: Json = json.loads(line)
                event["object"] |= {"kind": kind.kind, "apiVersion": kind.api}
                yield event
        except (ValueError, KeyError):
            raise ClusterError(f"GET {path}: not the events of a watch") from None
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(describe_http_error(error)) from None
        finally:
            answer.response.close()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        """Return one object; None if it does not exist. Raises ForbiddenError."""
        return self._call("GET", kind.path(namespace, name))

    def text(
        self, path: str, query: Sequence[tuple[str, str]], timeout_s: float = TIMEOUT_S
    ) -> str | None:
        """Return the text of a path, such as a log or a proxied service; None if it does not exist.

        Raises ForbiddenError, ClusterError.
        """
        status, data = self._send("GET", path, list(query), {"Accept": "*/*"}, timeout_s=timeout_s)
        if status == 404:
            return None
        if status >= 400:
            raise _http_error(status, data, f"GET {path}")
        return bytes(data).decode(errors="replace")

    def create(self, kind: Kind, manifest: Json, *, dry_run: bool = False) -> Json:
        """Create an object. Raises ForbiddenError, also for an admission denial, and ConflictError.

        `dry_run`: admit and check it, without creating it.
        """
        path = kind.path(objects.meta(manifest).get("namespace"))
        return self._write("POST", path, manifest, dry_run=dry_run)

    def patch(
        self, kind: Kind, name: str, change: Mapping[str, Any], namespace: str | None = None
    ) -> Json:
        """Merge-patch an object. Raises ConflictError if a given `resourceVersion` is outdated."""
        return self._write("PATCH", kind.path(namespace, name), dict(change))

    def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        """Delete an object and its dependents; no error if it does not exist."""
        options = {"propagationPolicy": "Background"}
        self._call("DELETE", kind.path(namespace, name), body=options)

    def _write(self, method: str, path: str, body: Json, *, dry_run: bool = False) -> Json:
        query = [("fieldManager", FIELD_MANAGER), *([("dryRun", "All")] if dry_run else [])]
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                answer = self._call(method, path, query, body)
                break
            except QuotaBusyError:
                if time.monotonic() > end:
                    raise
                # Of many clients each loses some rounds: not all at the same time again.
                time.sleep(random.uniform(0.05, 0.5))
        if answer is None:
            raise ClusterError(f"{method} {path}: object or kind not found")
        return answer

    def _call(
        self, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Any = None
    ) -> Json | None:
        headers = {"Accept": "application/json"}
        if body is not None:
            merges = method == "PATCH"
            headers["Content-Type"] = f"application/{'merge-patch+' if merges else ''}json"
        status, data = self._send(method, path, query or [], headers, body)
        return _decode(status, data, f"{method} {path}")

    def _send(self, method: str, *request: Any, **more: Any) -> tuple[int, Any]:
        """Return HTTP status and body of a `_request`, without interpreting them."""
        answer = self._request(method, *request, **more)
        try:
            return int(answer.status), answer.read()
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(describe_http_error(error)) from None

    def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: dict[str, str],
        body: Any = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """Send a request; return the client's response, whose body is not read yet. Raises UnreachableError."""
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
            return self._api.call_api(*request, _request_timeout=timeouts)
        except client.ApiException as error:
            raise self._unreachable(str(error.reason)) from None
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(describe_http_error(error)) from None

    def _unreachable(self, why: str) -> UnreachableError:
        server = self._api.configuration.host
        return UnreachableError(
            f"API server {server}: no answer: {why}; check that this is the right cluster: kubectl"
            " config get-contexts lists contexts, --context selects one"
        )


_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def _in_pod() -> bool:
    """Whether only the service account of this pod names a cluster."""
    named = os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().exists()
    return not named and _SERVICE_ACCOUNT.exists()


def _connect(kubeconfig: Path | Json | None, context: str | None) -> Any:
    """Return a client; that of a pod's service account reads its token again before it expires."""
    own = client.Configuration()
    own.retries = _RETRIES
    if kubeconfig is None and context is None and _in_pod():
        config.load_incluster_config(client_configuration=own)  # type: ignore[no-untyped-call]
        return client.ApiClient(own)
    # The client library's top-level package is not fully typed.
    if isinstance(kubeconfig, dict):
        return config.new_client_from_config_dict(  # type: ignore[no-untyped-call]
            kubeconfig, context, client_configuration=own
        )
    path = None if kubeconfig is None else str(kubeconfig)
    return config.new_client_from_config(path, context, client_configuration=own)  # type: ignore[no-untyped-call]


def _decode(status: int, data: Any, what: str) -> Json | None:
    """Return the decoded body; None for 404."""
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
    if status == 409 and "cannot be fulfilled on resourcequotas" in message:
        return QuotaBusyError(text)
    return {403: ForbiddenError, 409: ConflictError}.get(status, ClusterError)(text)


def describe_http_error(error: urllib3.exceptions.HTTPError) -> str:
    """Return the reason of a failed request, without the client's object representations."""
    return re.sub(r"^HTTPS?Connection(Pool)?\([^)]*\): ", "", str(getattr(error, "reason", error)))


_LOG_IN: Final = (
    "credentials are missing or expired: log in again (on EKS: aws sso login) until `kubectl get"
    " namespaces` works"
)


_WEBHOOK: Final = (
    "the webhook's controller does not answer:"
    f" kubectl get pods -n {naming.KUEUE_NAMESPACE} and -n {naming.JOBSET_NAMESPACE}"
)


def context_namespace(kubeconfig: Path | None, context: str | None = None) -> str:
    """Return the namespace of a kubeconfig's context; empty if it has none or cannot be read."""
    path = None if kubeconfig is None else str(kubeconfig)
    try:
        contexts, current = config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, yaml.YAMLError, TypeError, KeyError):
        return ""
    chosen = current if context is None else next((c for c in contexts if c["name"] == context), {})
    return str((chosen.get("context") or {}).get("namespace") or "")


def _kubeconfig_error(why: str) -> ClusterError:
    # The client quotes the faulty entry, which may include a token.
    text = re.sub(r"/\{.*\}", "", why)
    return ClusterError(
        f"kubeconfig: not usable: {text}; select another with --kubeconfig or --context"
    )


def _no_credentials(error: str) -> UnknownCallerError:
    """Return the error for a credential plugin's failure. A plugin that ended with 0 has not asked to log in."""
    remedy = _LOG_IN
    if error.startswith(_BAD_PLUGIN):
        remedy = (
            "the command of users[].user.exec must exist and print an ExecCredential of its apiVersion as JSON,"
            " and nothing else; run it by hand (kubectl config view --minify shows it)"
        )
    return UnknownCallerError(f"kubeconfig: no credentials: {error}; {remedy}")


_BAD_PLUGIN: Final = (
    *("exec: failed to decode", "exec: malformed", "exec: plugin api version", "exec: missing"),
    "[Errno ",  # It could not be started.
)
"""How errors begin that logging in does not mend."""


class _ErrorCapture(logging.Handler):
    """Collects messages logged as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        # In a terminal the plugin prints its own error, and the client then fails on the missing text.
        self.texts.append("its credential plugin failed" if "NoneType" in text else text)


@contextlib.contextmanager
def _capture_errors() -> Iterator[list[str]]:
    """Collect errors that the client only logs, such as a failing credential plugin."""
    handler = _ErrorCapture()
    logging.root.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logging.root.removeHandler(handler)
