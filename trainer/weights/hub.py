"""A hub of models with the HTTP interface of huggingface.co, through the library huggingface_hub.

The endpoint is HF_ENDPOINT, the token HF_TOKEN. The library's client is given rules of our own, which hold for
each request, redirects and further pages included: HTTPS only, the token to the endpoint's host only, answers of
bounded size. Files are read through that client, too: the library's own download cannot continue what another
process began, and does not compare checksums.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from trainer.weights.checksums import GIT_SHA1, SHA256, Checksum
from trainer.weights.files import MOST_FILES, RemoteFile, TransientError, WeightsError, is_wanted
from trainer.weights.reference import ENDPOINT_ENV, TOKEN_ENV, HubModel

# Read by the library when it is imported.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import httpx2
import huggingface_hub as library
from huggingface_hub import errors
from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

_PUBLIC: Final = "https://huggingface.co"
_MOST_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Size of a list of files or of an error."""
_PARTIAL: Final = 206
TIMEOUT_S: Final = 30.0
"""Seconds to connect, and without a byte."""
_RETRIED: Final = (408, 425, 429)
_ACCOUNT: Final = f"the account of {TOKEN_ENV}"


class Hub:
    """The files of one commit of a model."""

    def __init__(self, model: HubModel) -> None:
        """Read endpoint and token from the environment. Raises WeightsError for an invalid endpoint."""
        self._model = model
        self._id = f"{model.organization}/{model.name}"
        self._endpoint = _endpoint()
        self._token = os.environ.get(TOKEN_ENV, "").strip()
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        library.set_client_factory(self._client)

    def files(self) -> list[RemoteFile]:
        """Return the wanted files of the commit."""
        api = library.HfApi(endpoint=self._endpoint, token=self._token or False)
        commit = self._model.commit
        with _Converted(self._id, commit, bool(self._token)):
            info = api.model_info(self._id, revision=commit, timeout=TIMEOUT_S)
            tree = api.list_repo_tree(self._id, revision=commit, recursive=False)
            listed = list(itertools.islice(tree, MOST_FILES + 1))
            found = [
                _file(one)
                for one in listed
                if isinstance(one, library.RepoFile) and is_wanted(one.path)
            ]
        if info.sha != commit:
            raise WeightsError(f"{self._id}: the hub has commit {info.sha} where {commit} is asked")
        if len(listed) > MOST_FILES:
            raise WeightsError(f"{self._id}: has over {MOST_FILES} files")
        return found

    def append(self, file: RemoteFile, part: Path, progress: Callable[[int], None]) -> None:
        """Continue the file at the end of `part`, from 0 where the server ignores ranges."""
        url = library.hf_hub_url(
            self._id, file.name, revision=self._model.commit, endpoint=self._endpoint
        )
        headers = {"Accept-Encoding": "identity"}  # ranges of compressed content are others
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        with (
            part.open("ab") as stream,
            _Converted(self._id, self._model.commit, bool(self._token), file.name),
        ):
            if at := stream.tell():
                headers["Range"] = f"bytes={at}-"
            with library.get_session().stream("GET", url, headers=headers) as answer:
                hf_raise_for_status(answer)
                if answer.status_code != _PARTIAL:
                    stream.truncate(0)
                    at = 0
                for chunk in answer.iter_bytes():
                    at += len(chunk)
                    if at > file.bytes:
                        raise TransientError(f"the server sends more than its {file.bytes} bytes")
                    stream.write(chunk)
                    progress(at)

    def _client(self) -> httpx2.Client:
        hooks: dict[str, list[Callable[..., Any]]] = {
            "request": [self._guard],
            "response": [_bound],
        }
        return httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=TIMEOUT_S)

    def _guard(self, request: httpx2.Request) -> None:
        """Refuse plain HTTP, and keep the token from other hosts than the endpoint."""
        if not _is_safe(str(request.url)):
            host = request.url.host
            raise WeightsError(f"{self._id}: refers to {host} without HTTPS, which is refused")
        if request.url.origin != httpx2.URL(self._endpoint).origin:
            request.headers.pop("Authorization", None)


class _Stream(httpx2.SyncByteStream):
    """A response's content up to a limit."""

    def __init__(self, inner: httpx2.SyncByteStream) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        left = _MOST_ANSWER_BYTES
        for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise WeightsError(f"an answer of the hub has over {_MOST_ANSWER_BYTES} bytes")
            yield chunk

    def close(self) -> None:
        self._inner.close()


def _bound(response: httpx2.Response) -> None:
    """Limit everything but the content of files, which `Hub.append` limits."""
    is_file = response.status_code in (200, 206) and not response.url.path.startswith("/api/")
    if not is_file and isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _Stream(response.stream)


class _Converted:
    """Converts the errors of a request to those of this package, without addresses: these may hold signatures."""

    def __init__(self, model: str, commit: str, has_token: bool, name: str = "") -> None:
        self._what = f"{model}: {name}" if name else model
        self._commit, self._has_token = commit, has_token

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, TransientError):
            raise TransientError(f"{self._what}: {error}") from None
        if isinstance(error, errors.HfHubHTTPError):
            raise self._refused(error) from None
        if isinstance(error, httpx2.TransportError | httpx2.TooManyRedirects):
            reason = " ".join(str(error).split()) or type(error).__name__
            raise TransientError(f"{self._what}: {reason}") from None
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            raise WeightsError(
                f"{self._what}: the answer is not that of a hub of models; check {ENDPOINT_ENV}"
            ) from None

    def _refused(self, error: errors.HfHubHTTPError) -> Exception:
        code = error.response.status_code
        said = f"{self._what}: HTTP {code} from {error.response.url.host}"
        unset = (
            "" if self._has_token else f"; {TOKEN_ENV} is not set: add its team secret to `secrets`"
        )
        if code in _RETRIED or code >= 500:
            return TransientError(said)
        if isinstance(error, errors.GatedRepoError):
            return WeightsError(
                f"{said}: the model is gated: accept its terms with {_ACCOUNT}{unset}"
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return WeightsError(f"{said}: the model has no commit {self._commit}")
        if isinstance(error, errors.RepositoryNotFoundError) or code == 404:
            missing = "no such file" if ": " in self._what else "no such model"
            return WeightsError(f"{said}: {missing}, or {_ACCOUNT} may not read it{unset}")
        if code == 401:
            return WeightsError(f"{said}: {TOKEN_ENV} is not valid{unset}")
        if code == 403:
            return WeightsError(f"{said}: refused{unset or f'; check what {_ACCOUNT} may read'}")
        return WeightsError(said)


def _file(listed: library.RepoFile) -> RemoteFile:
    """Large files are named by the SHA-256 of their content, others by git's SHA-1. Raises ValueError."""
    digest = listed.lfs.sha256.removeprefix("sha256:") if listed.lfs else listed.blob_id
    size = listed.lfs.size if listed.lfs else listed.size
    if (
        type(size) is not int
        or size < 0
        or len(bytes.fromhex(digest)) != (32 if listed.lfs else 20)
    ):
        raise ValueError(listed.path)
    known = Checksum(algorithm=SHA256 if listed.lfs else GIT_SHA1, digest=digest)
    return RemoteFile(name=listed.path, bytes=size, checksums=(known,), tag=digest)


def _endpoint() -> str:
    endpoint = (os.environ.get(ENDPOINT_ENV) or _PUBLIC).strip().rstrip("/")
    if not _is_safe(endpoint):
        raise WeightsError(
            f"{ENDPOINT_ENV}: {endpoint!r} is not an HTTPS address; must be https://HOST; correct the team secret"
        )
    return endpoint


def _is_safe(url: str) -> bool:
    """HTTPS, or HTTP to this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if parts.username is not None or not host:
        return False
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
