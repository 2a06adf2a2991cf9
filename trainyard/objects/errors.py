"""Errors of S3 requests and which of them are retried.

Every error is an OSError of one line, so that callers handle S3 and file systems alike.
Error codes: docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final


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
