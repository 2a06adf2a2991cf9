"""A connection to S3 with credentials from the environment only, and the errors of its requests.

That is Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI), a web identity, or keys in variables: a
training pod must not fall back to its node's role, and a file in a home directory must not decide
whose bucket a run writes to. The endpoint is AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or AWS's own.

Every error is an OSError of one line, so that callers handle S3 and file systems alike.
Error codes: docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass
from typing import Any, Final

_FROM_ENVIRONMENT: Final = ("env", "assume-role-with-web-identity", "container-role")
_CONNECT_S: Final = 5.0
_DEFAULT_REGION: Final = "us-east-1"


class Connection:
    """One client, created on first use and again when its credentials are rejected.

    Thread-safe; a forked process must create its own.
    """

    def __init__(self, *, answer_s: float, connections: int) -> None:
        self._answer_s = answer_s
        self._connections = connections
        self._lock = threading.Lock()
        self._client: Any = None

    def client(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = _connect(self._answer_s, self._connections)
            return self._client

    def renew(self, used: Any) -> None:
        """Forget `used`, unless another thread has done so already."""
        with self._lock:
            if self._client is used:
                self._client = None


def _connect(answer_s: float, connections: int) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    nowhere = (None, None, None, None)
    files = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    session = Session(session_vars={"profile": nowhere, **files})
    resolver = session.get_component("credential_provider")
    for provider in list(resolver.providers):
        if provider.METHOD not in _FROM_ENVIRONMENT:
            resolver.remove(provider.METHOD)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    settings = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=answer_s,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1, "mode": "standard"},  # RetryPolicy decides
        tcp_keepalive=True,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return session.create_client("s3", region_name=region or _DEFAULT_REGION, config=settings)


class ObjectError(OSError):
    """A failed request; subclasses give the reason."""


class ObjectMissing(ObjectError):
    """The object or multipart upload does not exist."""


class ObjectExists(ObjectError):
    """A conditional write failed: another object is there."""


class AccessDenied(ObjectError):
    """No credentials, no permission or no such bucket; not retried."""


class ObjectsUnavailable(ObjectError):
    """Retries are exhausted: throttled, failing, slow or unreachable."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Time limits of one request with its retries."""

    total_s: float = 60.0
    """Seconds from the first try to the start of the last one."""
    first_s: float = 0.1
    """Maximum first pause; it doubles with each retry."""
    longest_s: float = 5.0
    """Maximum pause."""
    answer_s: float = 20.0
    """Read timeout of a connection."""

    def pause_s(self, tries: int, rng: random.Random) -> float:
        """Return seconds before the next try, uniformly random to spread throttled ranks.

        Source: "full jitter", aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter
        """
        return rng.uniform(0, min(self.longest_s, self.first_s * 2.0 ** min(tries, 30)))


_RETRIED: Final = frozenset(
    {
        "SlowDown",
        "RequestTimeout",
        "BadDigest",
        "InvalidDigest",
        "IncompleteBody",
        "ConditionalRequestConflict",
        "OperationAborted",
    }
)
"""Retried besides 5xx and 429. A wrong digest means damage in transit."""
_STALE_CREDENTIALS: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "RequestTimeTooSkewed",
        "400",
    }
)
"""`400` is how expired credentials appear on a HEAD request, whose response has no body."""
_REFUSED: Final = frozenset({"NoSuchBucket", "InvalidBucketName", "PermanentRedirect"})
"""Besides every 401 and 403."""
_MISSING: Final = frozenset({"NoSuchKey", "NoSuchUpload", "404", "NotFound"})


@dataclass(frozen=True)
class Failure:
    error: ObjectError
    again: bool = False
    """Whether to retry."""
    renew: bool = False
    """Whether to renew the credentials first."""


def classify_error(error: Exception, what: str) -> Failure:
    """Classify `error` of request `what`. Re-raises errors that are not botocore's."""
    from botocore import exceptions as aws
    from botocore.parsers import ResponseParserError

    if isinstance(error, aws.ClientError):
        return _answered(error, what)
    text = f"{what}: {' '.join(str(error).split())}"
    if isinstance(error, aws.CredentialRetrievalError):
        return Failure(ObjectsUnavailable(text), again=True, renew=True)
    if isinstance(error, aws.NoCredentialsError | aws.PartialCredentialsError):
        remedy = "give the pod's account a role, or set AWS_ACCESS_KEY_ID and the like"
        return Failure(AccessDenied(f"{what}: no AWS credentials in the environment; {remedy}"))
    transient = (
        aws.HTTPClientError,
        aws.ConnectionError,
        aws.IncompleteReadError,
        ResponseParserError,
        ConnectionError,
        TimeoutError,
    )
    if isinstance(error, transient):
        return Failure(ObjectsUnavailable(text), again=True)
    if isinstance(error, aws.BotoCoreError):
        return Failure(AccessDenied(text))
    raise error


def _answered(error: Exception, what: str) -> Failure:
    """Classify an error response of S3."""
    response = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = " ".join(str(response.get("Error", {}).get("Message", "")).split())
    text = f"{what}: {status} {code}: {message}"
    if code in _RETRIED or status >= 500 or status == 429:
        return Failure(ObjectsUnavailable(text), again=True)
    if code in _STALE_CREDENTIALS:
        return Failure(AccessDenied(text), again=True, renew=True)
    if status == 412:
        return Failure(ObjectExists(text))
    if code in _MISSING:
        return Failure(ObjectMissing(text))
    if code in _REFUSED or status in (401, 403):
        return Failure(AccessDenied(text))
    return Failure(ObjectError(text))
