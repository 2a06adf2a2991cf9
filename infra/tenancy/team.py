"""Team: a namespace with everything that a team's runs need, and with its limits and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from infra.domain import naming
from infra.domain.storage import TeamVolumes
from infra.domain.tier import RESEARCH
from infra.kubernetes.objects import Manifest, in_team, metadata
from infra.kubernetes.resources import KubernetesObject
from infra.sections.teams import TeamConfig
from infra.tenancy import (
    access,
    limits,
    network_policies,
    restore_drill,
    results_copy,
    secrets,
    volumes,
)


@dataclass(frozen=True, kw_only=True)
class TeamArgs:
    """One team; see the stack file's `teams` and `storage`."""

    team: TeamConfig
    signed_images: bool = False
    """Images without an accepted signature are rejected; see infra/addons/policy_controller.py."""
    volumes: TeamVolumes
    protect_volumes: bool = False
    """Protect claims and namespace from deletion, and keep them when they are removed from the program."""
    egress_cidrs: tuple[str, ...] = ()
    node_services: tuple[str, ...] = ()
    """Addresses of services on its node that a pod may reach; see `Cloud.node_services`."""
    secret_store: Mapping[str, Any] | None = None
    """Provider of the team's SecretStore; None: the cloud has none."""
    local_queue: bool = False
    """Whether its runs queue in a LocalQueue: with Kueue."""
    cluster_queue: pulumi.Resource | None = None
    """The team's ClusterQueue, which its LocalQueue depends on; None: not of this program, or without Kueue."""
    queue_holds_quota: bool = False
    """The scheduler's queue limits the resources of the team's pods, so the namespace's quota does not."""
    pod_groups: str = ""
    """API group of the runs' PodGroups; empty: runs have none."""
    drill_image: str = ""
    """Image of its restore drill, by digest; empty: it has none."""
    results_image: str = ""
    """Image of the copies of its results, by digest; empty: they are not copied."""
    results_store: str = ""
    """s3://BUCKET/PREFIX, where the team names none."""
    cpu_pool: str | None = None
    """Pool of these jobs; None: the scheduler chooses."""
    caps: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the namespace; see `admission.caps.cap_annotations`."""
    run_page: bool = False
    """Whether the run page in the cluster reads the team's runs."""
    costs: bool = False
    """Whether a program in the cluster holds the team to its budget."""
    steering: bool = False
    """Whether a program in the cluster moves the team's runs between its pools."""
    elastic_runs: bool = False
    """Whether a program in the cluster releases groups of the team's ended runs."""
    record: str = ""
    """The Platform record of the team's members as text; see infra/domain/published_record.py."""


def namespace(
    team: str,
    tier: str = RESEARCH.name,
    *,
    signed: bool = False,
    capped: Mapping[str, str] | None = None,
) -> Manifest:
    """Return the namespace; admission policies read the team's facts from its labels.

    Pod Security enforces its strictest level.
    """
    levels: dict[str, str] = {}
    for mode in ("enforce", "audit", "warn"):
        levels[f"pod-security.kubernetes.io/{mode}"] = "restricted"
        levels[f"pod-security.kubernetes.io/{mode}-version"] = "latest"
    labels = naming.object_labels("team", team) | {naming.TIER: tier} | levels
    if signed:
        labels[naming.SIGNED_IMAGES] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(naming.namespace(team), labels=labels, annotations=capped),
    }


def local_queue(team: str) -> Manifest:
    return in_team(
        f"{naming.KUEUE_API}/LocalQueue",
        naming.local_queue(team),
        "queues",
        team,
        spec={"clusterQueue": naming.cluster_queue(team), "stopPolicy": "None"},
    )


def platform_record(team: str, record: str) -> Manifest:
    """Return the ConfigMap that publishes the Platform record; admission lets no member of the team change it."""
    return in_team(
        "v1/ConfigMap",
        naming.PLATFORM_RECORD,
        "platform",
        team,
        data={naming.PLATFORM_RECORD_KEY: record},
    )


def _guardrail_manifests(args: TeamArgs) -> Iterator[tuple[str, Manifest]]:
    """Yield suffix and manifest of what must exist before the first pod: limits, policies, roles."""
    team, number = args.team.name, args.team.caps.dev_pods.number
    quota = limits.resource_quota(team, args.team.quota, of_pods=not args.queue_holds_quota)
    yield "quota", quota
    if number is not None:
        yield "dev-quota", limits.dev_pod_quota(team, number)
    yield "limits", limits.limit_range(team)
    yield "service-account", access.service_account(team)
    if args.record:
        yield "platform", platform_record(team, args.record)
    for role in access.ROLE_RULES:
        yield f"role-{role}", access.role(role, team, args.pod_groups)
    programs = [
        *(access.page_access(team) if args.run_page else ()),
        *(access.costs_access(team) if args.costs else ()),
        *(access.steering_access(team) if args.steering else ()),
        *(access.elastic_access(team) if args.elastic_runs else ()),
    ]
    for one in programs:
        yield f"{one['kind'].lower()}-{one['metadata']['name']}", one
    for policy in network_policies.policies(team, args.egress_cidrs, args.node_services):
        yield policy["metadata"]["name"], policy
    for manifest in secrets.manifests(team, args.team.secrets, args.secret_store):
        yield f"{manifest['kind'].lower()}-{manifest['metadata']['name']}", manifest


class Team(pulumi.ComponentResource):
    ready: pulumi.Resource
    """What its runs depend on: all of the team exists once this does."""

    def __init__(self, name: str, args: TeamArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Team"), name, None, opts)
        self.ready = self
        team = args.team.name
        # The namespace, too: its deletion would delete the claims in it.
        keep = args.protect_volumes
        home = KubernetesObject(
            f"{name}-namespace",
            namespace(team, args.team.tier, signed=args.signed_images, capped=args.caps),
            pulumi.ResourceOptions(parent=self, protect=keep, retain_on_delete=keep),
        )

        made: list[pulumi.Resource] = [home]

        def add(
            suffix: str, manifest: Manifest, *needs: pulumi.Resource, **more: Any
        ) -> pulumi.Resource:
            # Names are plain strings, so Pulumi cannot infer the order of deletion.
            own = pulumi.ResourceOptions(parent=self, depends_on=[home, *needs], **more)
            made.append(KubernetesObject(f"{name}-{suffix}", manifest, own))
            return made[-1]

        held = {suffix: add(suffix, manifest) for suffix, manifest in _guardrail_manifests(args)}
        for role in access.ROLE_RULES:
            binding = access.role_binding(role, team, args.team.groups.get(role, ()))
            add(f"binding-{role}", binding, held[f"role-{role}"])
        claims: dict[str, pulumi.Resource] = {}
        for claim, volume in (
            (naming.CHECKPOINTS_CLAIM, args.volumes.checkpoints),
            (naming.DATASETS_CLAIM, args.volumes.datasets),
        ):
            claims[claim] = add(
                claim,
                volumes.claim(team, claim, volume),
                *volume.needs,
                protect=keep,
                retain_on_delete=keep,
            )
        needs = held["service-account"], claims[naming.CHECKPOINTS_CLAIM]
        on_cpus = {naming.POOL: args.cpu_pool} if args.cpu_pool else {}
        if image := args.results_image:
            copies = results_copy.cron_job(args.team, image, args.results_store, on_cpus)
            add("results-copy", copies, *needs)
        if image := args.drill_image:
            drill = restore_drill.cron_job(team, args.team.restore_drill, image, on_cpus)
            add("restore-drill", drill, *needs)
        found = {"namespace": naming.namespace(team)}
        if args.local_queue:
            behind = [args.cluster_queue] if args.cluster_queue else []
            # The last one: each run then depends on one resource, not on a hundred, which its state would list.
            self.ready = add("queue", local_queue(team), *behind, *made[1:])
            found["localQueue"] = naming.local_queue(team)
        self.register_outputs(found)
