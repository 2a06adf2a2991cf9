"""Concurrent JSON requests to an API server, without generated models.

The generated classes of the `kubernetes` package would cost more CPU than the server's work; only its
kubeconfig loader and connection pool are used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode

import kubernetes
import urllib3

Json = dict[str, Any]

WRITERS: Final = 16
"""Concurrent requests: enough to keep a small server busy, below its rate limits."""
FIELD_MANAGER: Final = "trainyard-bench"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PATCH_TYPES: Final = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
}
_RETRY_S: Final = 0.25
_RETRY_TIMEOUT_S: Final = 120.0
"""Retry time while a webhook or the server is down; benchmarks kill both on purpose."""


class ApiError(Exception):
    """An error response of the API server. `status`: the HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text[:500]}")
        self.status = status
        self.already_exists = status == 409 and '"AlreadyExists"' in text
        """Whether an object was not created because there is one of that name."""

    @property
    def is_transient(self) -> bool:
        """Whether a retry may succeed. Creates conflict when others update the usage of the same ResourceQuota."""
        conflict = self.status == 409 and not self.already_exists
        return self.status == 429 or self.status >= 500 or conflict


class Api:
    """One API server, as the user of a kubeconfig. Threads may share it."""

    def __init__(self, kubeconfig: str, user: str = "", group: str = "") -> None:
        """`user` and `group`: identity to impersonate; empty: the kubeconfig's own."""
        settings = kubernetes.client.Configuration()
        load: Callable[..., None] = kubernetes.config.load_kube_config
        load(kubeconfig, client_configuration=settings)
        settings.connection_pool_maxsize = WRITERS + 8
        self._pool = kubernetes.client.ApiClient(settings).rest_client.pool_manager
        self._server: str = settings.host
        self._as = {"Impersonate-User": user, "Impersonate-Group": group} if user else {}
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def get(self, path: str, **query: str) -> Json:
        """One object or list."""
        answer: Json = json.loads(self._send("GET", path, query))
        return answer

    def text(self, path: str) -> str:
        """Return a response that is not JSON, such as metrics."""
        return self._send("GET", path, {}).decode()

    def list_names(self, path: str) -> list[tuple[str, str]]:
        """Namespace and name of all objects of a collection."""
        raw = self._send("GET", path, {}, accept=METADATA_ONLY)
        found = (item["metadata"] for item in json.loads(raw)["items"] or [])
        return [(metadata["namespace"], metadata["name"]) for metadata in found]

    def create(self, manifest: Json) -> None:
        """Create an object; no error if it exists, because a lost response is retried."""
        try:
            self._send("POST", self.collection(manifest), {}, manifest)
        except ApiError as error:
            if not error.already_exists:
                raise

    def post(self, path: str, body: Json) -> Json:
        """Post to a path, such as a subresource; return the answer."""
        answer: Json = json.loads(self._send("POST", path, {}, body))
        return answer

    def apply(self, manifest: Json) -> None:
        """Server-side apply."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        self._send("PATCH", self.path(manifest), query, manifest, _PATCH_TYPES["apply"])

    def merge(self, path: str, changes: Json) -> None:
        """A merge patch."""
        self._send("PATCH", path, {}, changes, _PATCH_TYPES["merge"])

    def delete(self, path: str) -> None:
        """Delete an object; no error if it does not exist."""
        options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        try:
            self._send("DELETE", path, {}, options)
        except ApiError as error:
            if error.status != 404:
                raise

    def is_deleted(self, path: str) -> bool:
        """Whether the object does not exist."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        return False

    def watch(self, path: str, version: str) -> Iterator[Json]:
        """Events after `version`, until the server ends the watch."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        response = self._pool.request(
            "GET",
            f"{self._server}{path}?{urlencode(query)}",
            headers={"Accept": "application/json"},
            preload_content=False,
            timeout=urllib3.Timeout(connect=5.0, read=3600.0),
        )
        try:
            if response.status >= 400:
                raise ApiError(response.status, response.read().decode(errors="replace"))
            rest = b""
            for chunk in response.stream(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        finally:
            response.close()

    def collection(self, manifest: Json) -> str:
        """Where objects like this one are."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        plural, namespaced = self._plural(version, kind)
        prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        inner = f"/namespaces/{manifest['metadata']['namespace']}" if namespaced else ""
        return f"{prefix}{inner}/{plural}"

    def path(self, manifest: Json) -> str:
        """Where this object is."""
        return f"{self.collection(manifest)}/{manifest['metadata']['name']}"

    def _plural(self, version: str, kind: str) -> tuple[str, bool]:
        if (version, kind) not in self._plurals:
            found = self.get(f"/api/{version}" if "/" not in version else f"/apis/{version}")
            for entry in found["resources"]:
                if "/" not in entry["name"]:
                    self._plurals[version, entry["kind"]] = entry["name"], entry["namespaced"]
        return self._plurals[version, kind]

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Json | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        url = f"{self._server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "Content-Type": content_type, **self._as}
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + _RETRY_TIMEOUT_S
        while True:
            try:
                answer = self._pool.request(
                    method, url, body=data, headers=headers, timeout=60.0, retries=False
                )
                if answer.status < 400:
                    return bytes(answer.data)
                refused = ApiError(answer.status, answer.data.decode(errors="replace"))
                error: Exception = refused
                passing = refused.is_transient
            except (urllib3.exceptions.HTTPError, OSError) as lost:
                error, passing = lost, True
            if not passing or time.monotonic() > deadline:
                raise error
            time.sleep(_RETRY_S)


def run_parallel(
    action: Callable[[Any], None], items: Iterable[Any], notify: Callable[[], None]
) -> None:
    """Call `action` for all items, WRITERS at a time, `notify` after each; stop at the first failure."""
    with ThreadPoolExecutor(WRITERS) as threads:
        running = [threads.submit(action, item) for item in items]
        try:
            for one in running:
                one.result()
                notify()
        except BaseException:
            for one in running:
                one.cancel()
            raise


def wait_until(found: Callable[[], Any], what: str, deadline_s: float, poll_s: float = 0.2) -> Any:
    """Return the first truthy `found()`. Raises TimeoutError."""
    end = time.monotonic() + deadline_s
    while not (value := found()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(poll_s)
    return value


def wait_deleted(api: Api, paths: Iterable[str], deadline_s: float) -> None:
    """Wait until none of these objects is left."""
    left = list(paths)

    def is_deleted() -> bool:
        left[:] = [path for path in left if not api.is_deleted(path)]
        return not left

    wait_until(is_deleted, f"{', '.join(left)} to be gone", deadline_s)
