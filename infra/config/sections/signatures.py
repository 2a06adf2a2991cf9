"""Signatures of images: one signer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from infra.addons.signatures import Keyless, KmsKey, Signer
from infra.config.errors import ConfigIssue
from infra.config.partial import Check, PartialStack
from infra.config.types import Str, StrictModel, matching

_KMS_KEY: Final = r"arn:aws:kms:[a-z0-9-]+:[0-9]{12}:key/[0-9a-f-]{36}"


_URL: Final = r"https://[a-z0-9.-]+(/[\w./-]*)?"


class KeylessConfig(StrictModel):
    """An OIDC identity that signs without a key."""

    issuer: Annotated[
        Str,
        AfterValidator(
            matching("url", _URL, "a URL such as https://token.actions.githubusercontent.com")
        ),
    ] = Field(description="the URL of an OIDC issuer")
    """OIDC issuer of the identity."""
    subject: Annotated[
        Str,
        AfterValidator(
            matching("identity", r"[^*\s]+", "one identity, without wildcards or spaces")
        ),
    ] = Field(description="the identity that signs, such as a workflow's URL with its branch")
    """Identity that signs, such as
    https://github.com/acme/images/.github/workflows/build.yml@refs/heads/main."""


class SignaturesConfig(StrictModel):
    """Signer of the teams' images: exactly one of the two."""

    keyless: KeylessConfig | None = None
    """A keyless signer: an OIDC identity."""
    kms_key: (
        Annotated[
            Str,
            AfterValidator(
                matching("kms-key", _KMS_KEY, "the ARN of a KMS key, arn:aws:kms:...:key/...")
            ),
        ]
        | None
    ) = None
    """A signing key in AWS KMS, such as
    arn:aws:kms:us-east-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef."""

    @property
    def signer(self) -> Signer:
        """Return the signer for the image policies."""
        if self.keyless:
            return Keyless(issuer=self.keyless.issuer, subject=self.keyless.subject)
        return KmsKey(uri=f"awskms:///{self.kms_key}")


def check_single_signer(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one signer; a KMS key requires a role that only EKS gives to pods."""
    section: Any = stack.raw.get("signatures")
    if not isinstance(section, dict):
        return
    named = [key for key in ("keyless", "kmsKey") if section.get(key) is not None]
    if len(named) != 1:
        yield ConfigIssue(
            path="signatures",
            code="single-signer",
            problem=f"{' and '.join(named)} are set" if named else "no signer is set",
            valid="exactly one of keyless and kmsKey is required",
            action="remove one of them" if named else "add one, or remove signatures",
        )
    elif named == ["kmsKey"] and stack.provider == "existing":
        yield ConfigIssue(
            path="signatures.kmsKey",
            code="aws-only",
            problem="a KMS key requires a cluster on AWS",
            valid="must be keyless where cluster.provider is existing",
            action="set keyless",
        )


CHECKS: Final[tuple[Check, ...]] = (check_single_signer,)
