"""A hub of models, through `huggingface_hub.snapshot_download`. The endpoint is HF_ENDPOINT, the token HF_TOKEN.

The library does not compare checksums, so `RemoteFile.verify` does. Its client gets one rule of our own, for each
request, redirects and further pages included: HTTPS only, and the token to the endpoint's host only.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from trainer.prepare.command import RetryableError
from trainer.prepare.progress import ProgressCallback
from trainer.weights.files import (
    GIT_SHA1,
    MOST_FILES,
    SHA256,
    RemoteFile,
    WeightsError,
    is_wanted,
)
from trainer.weights.reference import ENDPOINT_ENV, TOKEN_ENV, HubModel

# Read by the library when it is imported. Xet downloads from further hosts, by a client without our rule.
os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}

import httpx2
import huggingface_hub as library
from huggingface_hub import errors
from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

_PUBLIC: Final = "https://huggingface.co"
_TIMEOUT_S: Final = 30.0
"""Seconds to connect, and without a byte."""
_RETRIED: Final = (408, 425, 429)
_FILES_AT_ONCE: Final = 4
_ACCOUNT: Final = f"the account of {TOKEN_ENV}"


class Hub:
    """The files of one commit of a model."""

    def __init__(self, model: HubModel) -> None:
        """Read endpoint and token from the environment. Raises WeightsError for an invalid endpoint."""
        self._commit = model.commit
        self._id = f"{model.organization}/{model.name}"
        self._endpoint = _endpoint()
        self._token = os.environ.get(TOKEN_ENV, "").strip()
        logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
        library.set_client_factory(self._client)

    def files(self) -> list[RemoteFile]:
        """Return the wanted files of the commit."""
        api = library.HfApi(endpoint=self._endpoint, token=self._token or False)
        with self._converted():
            tree = api.list_repo_tree(self._id, revision=self._commit)
            listed = list(itertools.islice(tree, MOST_FILES + 1))
            if len(listed) > MOST_FILES:
                raise WeightsError(f"{self._id}: has over {MOST_FILES} files")
            files = (one for one in listed if isinstance(one, library.RepoFile))
            return [_file(one) for one in files if is_wanted(one.path)]

    def download(self, files: list[RemoteFile], folder: Path, progress: ProgressCallback) -> None:
        """Write files into a folder; the library continues one whose connection breaks."""
        records = folder / ".cache"
        for stale in records.rglob("*.incomplete"):  # of a killed call: each has a name of its own
            stale.unlink()
        total = sum(one.bytes for one in files)

        class Bar(tqdm):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options | {"disable": True})  # type: ignore[no-untyped-call]
                self._is_of_bytes = "Reconstructing" in options.get("desc", "")
                self._done = 0

            def update(self, n: float | None = 1) -> None:
                if self._is_of_bytes:
                    with self.get_lock():
                        self._done += int(n or 0)
                        progress("fetching", self._done, total)

        with self._converted():
            library.snapshot_download(
                self._id,
                revision=self._commit,
                endpoint=self._endpoint,
                token=self._token or False,
                local_dir=folder,
                cache_dir=records / "hub",
                allow_patterns=[one.name for one in files],
                max_workers=_FILES_AT_ONCE,
                tqdm_class=Bar,
            )

    def _client(self) -> httpx2.Client:
        hooks = {"request": [self._guard]}
        return httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=_TIMEOUT_S)

    def _guard(self, request: httpx2.Request) -> None:
        """Refuse plain HTTP, and keep the token from other hosts than the endpoint."""
        if not _is_safe(str(request.url)):
            host = request.url.host
            raise WeightsError(f"{self._id}: refers to {host} without HTTPS, which is refused")
        if request.url.origin != httpx2.URL(self._endpoint).origin:
            request.headers.pop("Authorization", None)

    @contextmanager
    def _converted(self) -> Iterator[None]:
        """Convert the library's errors to one line without addresses: these may hold signatures."""
        try:
            yield
        except errors.HfHubHTTPError as error:
            raise self._refused(error) from None
        except errors.LocalEntryNotFoundError as error:  # its cache was asked after a failure
            cause = error.__cause__
            if isinstance(cause, errors.HfHubHTTPError):
                raise self._refused(cause) from None
            raise RetryableError(f"{self._id}: {_reason(cause or error)}") from None
        except (httpx2.TransportError, httpx2.TooManyRedirects) as error:
            raise RetryableError(f"{self._id}: {_reason(error)}") from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise RetryableError(
                f"{self._id}: a file has not the size that was announced"
            ) from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise WeightsError(
                f"{self._id}: the answer is not that of a hub of models; check {ENDPOINT_ENV}"
            ) from None

    def _refused(self, error: errors.HfHubHTTPError) -> Exception:
        code = error.response.status_code
        said = f"{self._id}: HTTP {code} from {error.response.url.host}"
        unset = "" if self._token else f"; {TOKEN_ENV} is not set: add its team secret to `secrets`"
        if code in _RETRIED or code >= 500:
            return RetryableError(said)
        if isinstance(error, errors.GatedRepoError):
            said += f": the model is gated: accept its terms with {_ACCOUNT}{unset}"
        elif isinstance(error, errors.RevisionNotFoundError):
            said += f": the model has no commit {self._commit}"
        elif isinstance(error, errors.RepositoryNotFoundError) or code == 404:
            said += f": no such model, or {_ACCOUNT} may not read it{unset}"
        elif code == 401:
            said += f": {TOKEN_ENV} is not valid{unset}"
        elif code == 403:
            said += f": refused{unset or f'; check what {_ACCOUNT} may read'}"
        return WeightsError(said)


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


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
    algorithm = SHA256 if listed.lfs else GIT_SHA1
    return RemoteFile(name=listed.path, bytes=size, algorithm=algorithm, digest=digest)


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
