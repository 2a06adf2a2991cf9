"""Secrets in the stack file: their names only. Values are in Kubernetes or in a store."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.config.errors import invalid
from infra.config.types import DnsLabel, Str, StrictModel, matching
from infra.tenancy.secrets import TeamSecret

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")


RemoteKey = Annotated[
    Str,
    AfterValidator(
        matching(
            "remote-key",
            r"[\w/+=.@-]{1,512}",
            "letters, digits and any of /_+=.@-",
            "name one secret",
        )
    ),
]
"""No more than AWS Secrets Manager allows: the name becomes a part of an IAM policy, where * and ? are
many secrets."""


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise invalid(
            "variable", "must be capitals, digits and underscores, such as HF_TOKEN", "rename it"
        )
    return value


def _some(values: tuple[str, ...]) -> tuple[str, ...]:
    # min_length would complain of a list whose one element is wrong, too.
    if not values:
        raise invalid(
            "too-few", "must have at least one variable", "add the keys of the Secret", "has none"
        )
    return values


class TeamSecretConfig(StrictModel):
    """One Secret of a team's namespace."""

    name: DnsLabel = Field(description="a DNS label, the Secret's name")
    env: Annotated[tuple[Annotated[Str, AfterValidator(_variable)], ...], AfterValidator(_some)] = (
        Field(description="a list of keys of the Secret, each a variable such as HF_TOKEN")
    )
    """What a run that names this secret gets in its environment."""
    remote_key: RemoteKey | None = None
    """The secret in a store that External Secrets makes it from. Default: the Secret is there already."""
    store: DnsLabel | None = None
    """A ClusterSecretStore of the cluster. Default: AWS Secrets Manager, read as this team."""

    @property
    def secret(self) -> TeamSecret:
        """The secret that the platform works with."""
        return TeamSecret(
            name=self.name, env=self.env, remote_key=self.remote_key, store=self.store
        )
