"""Programs of this project in the cluster: costs, steering, elastic runs, the run page, and node checks."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from infra.sections.observability import Https, IngressConfig
from infra.sections.teams import TRAINER_IMAGE
from infra.sections.types import (
    Bool,
    DnsLabel,
    Image,
    Int,
    Number,
    Size,
    Str,
    StrictModel,
    matching,
)


class CostsConfig(StrictModel):
    """Records costs and enforces budgets in the cluster."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    volume: Size = "10Gi"
    """Size of the record's volume; 10,000 runs take less than 1Gi."""
    storage_class: DnsLabel | None = None
    """StorageClass for ReadWriteOnce volumes. Default: encrypted gp3 on a cluster of the stack, else the
    cluster's default."""
    every_seconds: Annotated[Int, Field(ge=5, le=60)] = 60
    """Polling interval in seconds; shorter for a team near its limit."""


class ElasticRunsConfig(StrictModel):
    """Deletes pending groups of finished runs; required by `groups` of run files."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    every_seconds: Annotated[Int, Field(ge=1, le=300)] = 30
    """Polling interval in seconds."""


_HOUR_S: Final = 3600.0


class SteeringConfig(StrictModel):
    """Moves runs between the pools of their queue, by losses, deadlines and prices."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    losses: Annotated[Int, Field(ge=1, le=10)] = 2
    """Losses within `withinHours` after which a run leaves a spot pool."""
    within_hours: Annotated[Number, Field(gt=0, le=168)] = 6.0
    """Period of `losses`, and how long the run stays away from the pool."""
    empty_hours: Annotated[Number, Field(gt=0, le=24)] = 1.0
    """Hours before a run tries a pool again that had no nodes in time; doubles each time in a row."""
    every_seconds: Annotated[Int, Field(ge=5, le=60)] = 30
    """Polling interval in seconds."""

    cordon_named_nodes: bool = False
    """Cordon nodes on which runs name a corrupt, repeatedly hung or slow rank; requires Prometheus
    (docs/failures.md#replace-the-node)."""

    def rules(self) -> dict[str, Any]:
        """Return the rules as the program reads them."""
        return {
            "losses": self.losses,
            "windowSeconds": self.within_hours * _HOUR_S,
            "emptySeconds": self.empty_hours * _HOUR_S,
        }


_CLAIM: Final = matching("claim", r"[\w:./-]{1,200}", "the name of a claim, such as email")
_TEXT: Final = matching("text", r"[\x21-\x7e]{1,300}", "printable characters without spaces")
_PREFIX: Final = matching("prefix", r"(?!system:)[\x21-\x7e]{0,100}", "a prefix such as oidc:")


class RunPageConfig(StrictModel):
    """The run page in the cluster, behind oauth2-proxy."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    proxy_image: Image = Field(description="quay.io/oauth2-proxy/oauth2-proxy by digest, or a copy")
    """Image of oauth2-proxy, by digest."""
    url: Https = Field(description="the URL under which people open the page")
    """URL under which people open the page."""
    issuer: Https = Field(description="the URL of an OIDC issuer")
    """OIDC issuer that signs users in."""
    client_id: Annotated[Str, AfterValidator(_TEXT)] = Field(description="the OIDC client's id")
    """OIDC client; redirects to URL/oauth2/callback."""
    secret_name: DnsLabel = Field(
        description="the name of a Secret of the namespace trainyard-page"
    )
    """Secret in `trainyard-page` with the keys client-secret and cookie-secret, which you create."""
    username_claim: Annotated[Str, AfterValidator(_CLAIM)] = "email"
    """Claim that is the user's name in RBAC."""
    groups_claim: Annotated[Str, AfterValidator(_CLAIM)] = "groups"
    """Claim with the user's groups in RBAC."""
    username_prefix: Annotated[Str, AfterValidator(_PREFIX)] = ""
    """The API server's prefix of user names. Default: none."""
    groups_prefix: Annotated[Str, AfterValidator(_PREFIX)] = ""
    """The API server's prefix of group names. Default: none."""
    ingress: IngressConfig | None = None
    """Ingress of the Service `run-page`. Default: one of your own."""


class ValidationConfig(StrictModel):
    """Node checks."""

    image: Str = TRAINER_IMAGE
    """Trainer image: a name in `images`, or a reference by digest."""
    weekly: Bool = False
    """On Mondays also check idle nodes of pools with min above 0."""
    min_gbps: dict[DnsLabel, Annotated[Number, Field(gt=0)]] = Field(default={}, alias="minGBps")
    """By pool: bus bandwidth in GB/s below which the collective check fails. Default: only reported."""
