"""Errors of resources; each text is one line that names the object.

ProviderError
  ApiError            the API server returned an error
  Unreachable         it did not respond
  UnknownKind         it does not serve the kind (yet)
  NotInitialized      the object exists, but is not ready or not deleted in time
    Cancelled         the engine cancelled the wait
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.provider.objects import Kind, Object


class ProviderError(Exception):
    """The text is for the user."""


class ApiError(ProviderError):
    """An error status of the API server (its `Status` object)."""

    def __init__(self, code: int, status: dict[str, Any]) -> None:
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = " ".join(str(status.get("message") or f"HTTP {code}").split())
        details = status.get("details")
        self.details: dict[str, Any] = details if isinstance(details, dict) else {}
        super().__init__(self.message)

    @property
    def not_found(self) -> bool:
        return self.code == 404

    @property
    def forbidden(self) -> bool:
        return self.code == 403

    @property
    def conflict(self) -> bool:
        return self.code == 409

    @property
    def quota_busy(self) -> bool:
        """Whether nothing was created because others were counted at the same time; a repetition may succeed."""
        return self.conflict and "cannot be fulfilled on resourcequotas" in self.message

    @property
    def immutable(self) -> bool:
        """Whether an immutable field was changed."""
        return self.code == 422 and "immutable" in self.message

    @property
    def namespace_missing(self) -> bool:
        return self.not_found and self.details.get("kind") == "namespaces"

    @property
    def webhook_down(self) -> bool:
        """Whether a webhook did not respond; it may be starting."""
        return self.code == 500 and "failed calling webhook" in self.message

    @property
    def no_dry_run(self) -> bool:
        """Whether only a webhook rejects the dry run of a valid request."""
        return self.webhook_down or (
            self.code == 400 and "does not support dry run" in self.message
        )


class Unreachable(ProviderError):
    """The API server did not respond; the text gives the reason."""


class UnknownKind(ProviderError):
    """The API server does not serve the kind; usually its CustomResourceDefinition is missing."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        super().__init__(
            f"the API server does not serve {kind}; is its CustomResourceDefinition created first?"
        )


class NotInitialized(ProviderError):
    """An object was written but is not ready: its state is kept, a rerun waits again."""

    def __init__(self, obj: Object, reasons: Sequence[str]) -> None:
        self.object = obj
        self.reasons = list(reasons)
        super().__init__("; ".join(self.reasons))


class Cancelled(NotInitialized):
    """The wait for an object was cancelled."""
