"""Who signs images, in the stack file."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.config.fields import Section, Str
from infra.platform.signatures import Keyless, KmsKey, Signer

_KMS_KEY: Final = r"arn:aws:kms:[a-z0-9-]+:[0-9]{12}:key/[0-9a-f-]{36}"
_URL: Final = r"https://[a-z0-9.-]+(/[\w./-]*)?"


def _of_form(pattern: str, allowed: str) -> AfterValidator:
    form = re.compile(pattern)

    def check(value: str) -> str:
        if not form.fullmatch(value):
            raise ValueError(f"{allowed}; correct it")
        return value

    return AfterValidator(check)


class KeylessConfig(Section):
    """An identity that signs without a key of its own."""

    issuer: Annotated[
        Str, _of_form(_URL, "a URL such as https://token.actions.githubusercontent.com")
    ] = Field(description="the URL of an OIDC issuer")
    subject: Annotated[Str, _of_form(r"[^*]+", "one identity, without wildcards")] = Field(
        description="the identity that signs, such as a workflow's URL with its branch"
    )


class SignaturesConfig(Section):
    """Who signs the images of the stack's teams: one of the two."""

    keyless: KeylessConfig | None = None
    kms_key: (
        Annotated[Str, _of_form(_KMS_KEY, "the ARN of a KMS key, arn:aws:kms:...:key/...")] | None
    ) = None

    @property
    def signer(self) -> Signer:
        """The signer that the platform works with."""
        if self.keyless:
            return Keyless(issuer=self.keyless.issuer, subject=self.keyless.subject)
        return KmsKey(uri=f"awskms:///{self.kms_key}")
