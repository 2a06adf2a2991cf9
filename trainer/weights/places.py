"""Where models are fetched from: a hub, through `huggingface_hub.snapshot_download`, or a prefix of a bucket.

The hub's address is HF_ENDPOINT, its token HF_TOKEN; credentials for S3 come from the environment.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from trainer.prepare.staging import write_chunks
from trainer.prepare.state import ProgressCallback, RetryableError
from trainer.weights.reference import (
    ENDPOINT_ENV,
    TOKEN_ENV,
    BucketModel,
    HubModel,
    parse_reference,
)
from trainyard.objects import ObjectError, Objects, ObjectsUnavailable

# Read by the library when it is imported. Xet downloads from further hosts.
os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}

import httpx2
import huggingface_hub as library
from huggingface_hub import errors
from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

_PUBLIC: Final = "https://huggingface.co"
_RETRIED: Final = (408, 425, 429)
_FILES_AT_ONCE: Final = 4
_ACCOUNT: Final = f"the account of {TOKEN_ENV}"
_WANTED: Final = re.compile(
    r"model(-\d+-of-\d+)?\.safetensors|[A-Za-z0-9_][A-Za-z0-9_.-]*\.(json|txt|model|jinja|tiktoken)"
)
"""Configuration, weights and tokenizer as transformers names them: no pickles, nothing hidden or in subfolders."""


class WeightsError(Exception):
    """What cannot be fetched, however often it is tried; one line."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    name: str
    bytes: int
    stated: str
    """The checksum that its place states, hexadecimal: SHA-256, or git's SHA-1; empty: none of them."""


class Place(Protocol):
    """A hub or a bucket. Methods raise WeightsError and RetryableError."""

    def files(self) -> list[RemoteFile]:
        """Return the files of the model that are fetched."""

    def download(self, files: list[RemoteFile], folder: Path, progress: ProgressCallback) -> None:
        """Write files into a folder; their content is not checked here.

        A file is there when it is complete: what a killed call has fetched is not fetched again.
        """


def open_place(source: str) -> Place:
    """Return the place of a reference. Raises BadReference, WeightsError."""
    found = parse_reference(source)
    return Hub(found) if isinstance(found, HubModel) else Bucket(found)


class Bucket:
    def __init__(self, model: BucketModel) -> None:
        self._objects = Objects.at(f"{model.location.url()}/")

    def files(self) -> list[RemoteFile]:
        with _s3_errors():
            listed = [one for one in self._objects.list() if _WANTED.fullmatch(one.name)]
            return [
                RemoteFile(name=one.name, bytes=one.bytes, stated=self._sha256(one.name))
                for one in listed
            ]

    def _sha256(self, name: str) -> str:
        """Return the SHA-256 of an object as it was uploaded; empty without one, or where each part has one."""
        head = self._objects.call("head_object", name, ChecksumMode="ENABLED")
        stated = head.get("ChecksumSHA256", "")
        return "" if "-" in stated else base64.b64decode(stated).hex()

    def download(self, files: list[RemoteFile], folder: Path, progress: ProgressCallback) -> None:
        """See Place; one after another."""
        total, done = sum(one.bytes for one in files), 0
        part = folder / ".part"
        for file in files:
            with _s3_errors():
                for chunk in write_chunks(self._objects.chunks(file.name, count=file.bytes), part):
                    done += len(chunk)
                    progress("fetching", done, total)
            part.rename(folder / file.name)


@contextmanager
def _s3_errors() -> Iterator[None]:
    try:
        yield
    except ObjectsUnavailable as error:
        raise RetryableError(str(error)) from None
    except ObjectError as error:
        raise WeightsError(str(error)) from None


class Hub:
    def __init__(self, model: HubModel) -> None:
        """Read endpoint and token from the environment. Raises WeightsError for an invalid endpoint."""
        self._commit = model.commit
        self._id = f"{model.organization}/{model.name}"
        self._endpoint = _endpoint()
        self._token = os.environ.get(TOKEN_ENV, "").strip()
        logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)

    def files(self) -> list[RemoteFile]:
        """See Place. The hub states the SHA-256 of large files, and git's SHA-1 of others."""
        api = library.HfApi(endpoint=self._endpoint, token=self._token or False)
        with self._hub_errors():
            tree = api.list_repo_tree(self._id, revision=self._commit)
            found = [
                one
                for one in tree
                if isinstance(one, library.RepoFile) and _WANTED.fullmatch(one.path)
            ]
            return [
                RemoteFile(
                    name=one.path,
                    bytes=int(one.lfs.size if one.lfs else one.size),
                    stated=one.lfs.sha256.removeprefix("sha256:") if one.lfs else one.blob_id,
                )
                for one in found
            ]

    def download(self, files: list[RemoteFile], folder: Path, progress: ProgressCallback) -> None:
        """See Place; the library continues one whose connection breaks."""
        records = folder / ".cache"
        for stale in records.rglob("*.incomplete"):  # of a killed call: each has a name of its own
            stale.unlink()
        total = sum(one.bytes for one in files)

        class Bar(tqdm):
            def __init__(self, **options: object) -> None:
                super().__init__(**options | {"disable": True})  # type: ignore[no-untyped-call]
                self._is_of_bytes = "Reconstructing" in str(options.get("desc"))
                self._done = 0

            def update(self, n: float | None = 1) -> None:
                if self._is_of_bytes:
                    with self.get_lock():
                        self._done += int(n or 0)
                        progress("fetching", self._done, total)

        with self._hub_errors():
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

    @contextmanager
    def _hub_errors(self) -> Iterator[None]:
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


def _endpoint() -> str:
    """Return the hub's address: HTTPS, or HTTP to this machine."""
    endpoint = (os.environ.get(ENDPOINT_ENV) or _PUBLIC).strip().rstrip("/")
    try:
        parts = urlsplit(endpoint)
        secure = parts.scheme == "https" and parts.hostname and not parts.username
        local = parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        secure = local = False
    if secure or local:
        return endpoint
    raise WeightsError(
        f"{ENDPOINT_ENV}: {endpoint!r} is not an HTTPS address; must be https://HOST; correct the team secret"
    )
