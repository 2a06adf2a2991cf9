"""Teams: tier, quota, secrets, restore drill and copies of results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from infra.domain import naming, quantity
from infra.domain.tier import TIERS, TierName
from infra.sections.aws import role_arn
from infra.sections.errors import invalid
from infra.sections.types import (
    Bool,
    Cores,
    DnsLabel,
    Int,
    Number,
    Size,
    Str,
    StrictModel,
    TeamName,
    matching,
)

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
    """Variables of runs that name it."""
    remote_key: RemoteKey | None = None
    """Key in the store, from which External Secrets creates it. Default: you create the Secret."""
    store: DnsLabel | None = None
    """A ClusterSecretStore of the cluster. Default: AWS Secrets Manager, read as this team."""


TRAINER_IMAGE: Final = "trainer"
"""Default image of drills, copies and node checks: its name in `images`."""


_CRON_FIELDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


_CRON_TERM: Final = re.compile(r"(\*|[0-9]+(-[0-9]+)?)(/0*[1-9][0-9]*)?")


_PLACE: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w.=-]+)*", re.ASCII)


def _schedule(value: str) -> str:
    fields = value.split()
    sound = len(fields) == len(_CRON_FIELDS) and all(
        _term(term, low, high)
        for text, (low, high) in zip(fields, _CRON_FIELDS, strict=True)
        for term in text.split(",")
    )
    if not sound:
        raise invalid(
            "cron-schedule",
            "must be minute, hour, day, month and weekday in numbers (0 is Sunday), such as 17 3 * * *",
        )
    return value


def _term(text: str, low: int, high: int) -> bool:
    if not _CRON_TERM.fullmatch(text):
        return False
    numbers = [int(n) for n in re.findall(r"\d+", text.partition("/")[0])]
    return all(low <= n <= high for n in numbers) and numbers == sorted(numbers)


def _place(value: str) -> str:
    if not _PLACE.fullmatch(value):
        raise invalid("s3-uri", "must be s3://BUCKET/PREFIX")
    return value


class RestoreDrillConfig(StrictModel):
    """A scheduled restore of the team's newest checkpoints."""

    enabled: Bool | None = None
    """Default: true for production teams with an image."""
    schedule: Annotated[Str, AfterValidator(_schedule)] = "17 3 * * *"
    """Cron schedule in UTC."""
    image: Str = TRAINER_IMAGE
    """A name in `images`, or a reference by digest."""
    runs: Annotated[Int, Field(ge=1, le=1000)] = 3
    """Number of runs, newest checkpoints first."""
    largest: Size = "8Gi"
    """Largest checkpoint to restore, which takes as much memory and scratch space; of larger ones every byte is
    read and its hash compared."""
    stores: tuple[Annotated[Str, AfterValidator(_place)], ...] = ()
    """Prefixes of runs whose `checkpoint.store` is a bucket."""

    def wanted(self, tier: str, *, has_image: bool) -> bool:
        """Return whether the team has a drill. `has_image`: `images` names the drill's image."""
        if self.enabled is not None:
            return self.enabled
        return TIERS[tier].restore_drill_by_default and (has_image or self.image != TRAINER_IMAGE)


class ResultsConfig(StrictModel):
    """Scheduled copies of all runs of the team to a bucket, where its volume does not export itself."""

    enabled: Bool | None = None
    """Default: true where `store` is set, and on AWS without FSx for Lustre if `images` has the image."""
    schedule: Annotated[Str, AfterValidator(_schedule)] = "*/10 * * * *"
    """Cron schedule in UTC."""
    image: Str = TRAINER_IMAGE
    """A name in `images`, or a reference by digest."""
    store: Annotated[Str, AfterValidator(_place)] | None = None
    """Destination, with a folder per run. Default: s3://PREFIX-checkpoints/TEAM."""
    secret_name: DnsLabel | None = None
    """One of `secrets` with AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3 and the like. Default: the team's role."""

    def wanted(self, *, exported: bool, own_bucket: bool, has_image: bool) -> bool:
        """Return whether the team's results are copied.

        `exported`: the file system does it; `own_bucket`: the stack has buckets; `has_image`: `images` names the
        image.
        """
        if self.enabled is not None:
            return self.enabled
        return bool(self.store) or (own_bucket and has_image and not exported)


class QuotaConfig(StrictModel):
    """Limits of a team's namespace, independent of its queue."""

    cpu: Cores = Field(description="a number of cores")
    """CPU cores."""
    memory: Size = Field(description="a size such as 4Ti")
    """Memory."""
    gpus: Int = Field(ge=0, description="a number of GPUs")
    """GPUs."""
    objects: Int = Field(default=5000, ge=10, le=100_000)
    """Limit of ConfigMaps, of Services, and of Jobs (those of JobSets, too)."""


class DevCapsConfig(StrictModel):
    """Caps of the team's dev pods."""

    number: Annotated[Int, Field(ge=0)] | None = None
    """Most that run at a time in the team. Default: any."""
    gpus: Annotated[Int, Field(ge=0)] | None = None
    """Most GPUs of one. Default: those of a node."""
    hours: Annotated[Number, Field(gt=0, le=24)] | None = None
    """Longest time limit of one. Default: `caps.hours`, and 24."""
    gpu_hours: Annotated[Number, Field(gt=0)] | None = None
    """Most GPU-hours of one in its time limit. Default: `caps.gpuHours`."""


class CapsConfig(StrictModel):
    """Caps of one run that a member of the team submits, and of dev pods; runs of the stack have none."""

    nodes: Annotated[Int, Field(ge=1)] | None = None
    """Most nodes. Default: what the queue and the quota allow."""
    hours: Annotated[Number, Field(gt=0)] | None = None
    """Longest `maxHours`, which a run must then have. Default: any."""
    gpu_hours: Annotated[Number, Field(gt=0)] | None = None
    """Most GPU-hours in its `maxHours`, as whole nodes of the pool with most GPUs. Default: any."""
    dev_pods: DevCapsConfig = DevCapsConfig()
    """Caps of the team's dev pods."""


_GROUP: Final = re.compile(r"[\w.@/+=-][\w.@/+=: -]{0,252}", re.ASCII)
_RESERVED_GROUPS: Final = ("system:", f"{naming.PROJECT}:")


def _member(value: str) -> str:
    if value.startswith("arn:"):
        return role_arn(value)
    if value.startswith(_RESERVED_GROUPS):
        raise invalid(
            "reserved-group",
            "must be a group of your identity provider; system: and trainyard: are the cluster's own",
            "name another group",
            "is reserved",
        )
    if not _GROUP.fullmatch(value):
        raise invalid(
            "member",
            "must be the ARN of an IAM role, or a group as the identity provider names it",
            "name one",
        )
    return value


Member = Annotated[Str, AfterValidator(_member)]


class MembersConfig(StrictModel):
    """Who belongs to a team: IAM roles (EKS only), and groups of the cluster's identity provider."""

    researchers: tuple[Member, ...] = Field(
        default=(), description="a list of role ARNs and group names"
    )
    """See everything but Secrets, submit runs, stop their own."""
    leads: tuple[Member, ...] = Field(default=(), description="a list of role ARNs and group names")
    """The same, and stop all runs of the team."""

    def by_role(self) -> dict[str, tuple[str, ...]]:
        """Return the members by the role that infra/tenancy/access.py defines."""
        return {"researcher": self.researchers, "lead": self.leads}


class BudgetConfig(StrictModel):
    """Limits of a team in a calendar month (UTC), at catalog prices; `trainyard cost enforce` holds them."""

    usd_per_month: Annotated[Number, Field(gt=0)] | None = None
    """USD of the nodes that its runs hold. Default: no limit."""
    gpu_hours_per_month: Annotated[Number, Field(gt=0)] | None = None
    """GPU-hours that its runs hold. Default: no limit."""
    warn_at: Annotated[Number, Field(gt=0, le=1)] = 0.8
    """Part of a limit that triggers a warning."""
    action: Literal["warn", "hold", "drain"] = "warn"
    """At the limit: only warn; `hold` admits no further run; `drain` also stops runs on spot nodes or of low
    priority, after a save."""


class TeamConfig(StrictModel):
    """One team."""

    name: TeamName = Field(description="a DNS label")
    """Name of the team; its namespace is team-NAME."""
    tier: TierName = Field(description="research or production")
    """`production` prefers on-demand capacity and preempts borrowers; `research` prefers spot."""
    guaranteed: dict[DnsLabel, Annotated[Int, Field(ge=0)]] = Field(default={})
    """Guaranteed nodes by pool; the rest of a pool is shared."""
    quota: QuotaConfig = Field(description="cpu, memory and gpus")
    """Limit of all pods in the namespace, regardless of the queue."""
    caps: CapsConfig = CapsConfig()
    """Caps of a run that a member submits, and of dev pods."""
    members: MembersConfig = MembersConfig()
    """Who may submit runs. Default: members of the team's groups in the cluster."""
    borrowing: dict[DnsLabel, Annotated[Int, Field(ge=0)]] = Field(default={})
    """Most nodes beyond its guarantee, by pool; other pools: all that others leave."""
    lending: dict[DnsLabel, Annotated[Int, Field(ge=0)]] = Field(default={})
    """Most of its guarantee that others may use, by pool; other pools: all."""
    on_demand_usd_per_hour: Annotated[Number, Field(ge=0)] | None = None
    """Most USD of a research team's on-demand nodes, guaranteed ones included; 0: never on demand. Default: no
    limit."""
    budget: BudgetConfig | None = None
    """Monthly budget. Default: none."""
    fair_weight: Annotated[Int, Field(ge=1, le=1000)] | None = None
    """Share of unguaranteed nodes, relative to other teams. Default: 1, for production 10."""
    secrets: tuple[TeamSecretConfig, ...] = ()
    """Secrets that the team's runs may name."""
    restore_drill: RestoreDrillConfig = RestoreDrillConfig()
    """Scheduled restores of the team's checkpoints."""
    results: ResultsConfig = ResultsConfig()
    """Copies of the team's runs in a bucket."""

    @property
    def weight(self) -> int:
        """Weight when unguaranteed nodes are shared out."""
        return self.fair_weight or TIERS[self.tier].fair_weight

    @property
    def amounts(self) -> dict[str, int]:
        """Quota by resource: millicores, bytes, devices."""
        return {
            "cpu": quantity.millicores(self.quota.cpu),
            "memory": quantity.bytes_(self.quota.memory),
            naming.GPU: self.quota.gpus,
        }

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Groups of the identity provider by role."""
        return {
            role: tuple(one for one in members if not is_role(one))
            for role, members in self.members.by_role().items()
        }


def is_role(member: str) -> bool:
    """Whether a member is an IAM role, not a group."""
    return member.startswith("arn:")


def access_groups(teams: Sequence[TeamConfig]) -> Mapping[str, tuple[str, ...]]:
    """Return by the ARN of an IAM role the Kubernetes groups that its access entry names."""
    found: dict[str, list[str]] = {}
    for team in teams:
        for role, members in team.members.by_role().items():
            for one in filter(is_role, members):
                found.setdefault(one, []).append(naming.group(team.name, role))
    return {arn: tuple(names) for arn, names in found.items()}
