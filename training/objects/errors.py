"""What a request to S3 can end with, and what of it is worth another try.

Every error is an OSError of one line, like a file system's: who saves a checkpoint treats both
alike. Which codes mean what: docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final


class ObjectError(OSError):
    """A request that did not work; one line. The classes below say why."""


class ObjectMissing(ObjectError):
    """There is no object of this name, or no upload of this number."""


class ObjectExists(ObjectError):
    """A conditional write lost: somebody else's object is there."""


class AccessDenied(ObjectError):
    """No credentials, no permission, no such bucket: waiting does not help."""


class ObjectsUnavailable(ObjectError):
    """Tried until retry was used up: throttled, failing, slow, or not reachable."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long one request is tried, all its tries together."""

    total_s: float = 60.0
    """Seconds from the first try to the start of the last one."""
    first_s: float = 0.1
    """The longest first pause; each following one may be twice as long."""
    longest_s: float = 5.0
    """No pause is longer."""
    answer_s: float = 20.0
    """Seconds that a connection may be silent."""

    def pause_s(self, tries: int, rng: random.Random) -> float:
        """Seconds before the next try: drawn evenly, so that throttled ranks do not march in step.

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
"""Besides every 5xx and 429. A digest that does not fit was damaged on its way."""
_STALE_CREDENTIALS: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "RequestTimeTooSkewed",
        "400",
    }
)
"""The last is what expired ones look like on a HEAD request, whose answer has no body to say why."""
_REFUSED: Final = frozenset({"NoSuchBucket", "InvalidBucketName", "PermanentRedirect"})
"""Besides every 401 and 403."""
_MISSING: Final = frozenset({"NoSuchKey", "NoSuchUpload", "404", "NotFound"})


@dataclass(frozen=True)
class Failure:
    """What to make of one failed try."""

    error: ObjectError
    again: bool = False
    """Whether another try may work."""
    renew: bool = False
    """Whether it needs fresh credentials."""


def classify_error(error: Exception, what: str) -> Failure:
    """What to make of `error`, which ended `what`. Raises it again when it is none of S3's."""
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
    """S3 said no."""
    response = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    said = " ".join(str(response.get("Error", {}).get("Message", "")).split())
    text = f"{what}: {status} {code}: {said}"
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
