"""Signatures of images: one signer."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.sections.types import Str, StrictModel, matching

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
    """Signing identity, such as https://github.com/acme/images/.github/workflows/build.yml@refs/heads/main."""


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
    """ARN of a signing key in AWS KMS."""
