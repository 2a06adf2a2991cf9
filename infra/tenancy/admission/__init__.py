"""Admission policies of team namespaces, which hold for every user. See docs/security.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.domain.pools import Taint
from infra.kubernetes.controller_accounts import KUBE_SCHEDULER
from infra.kubernetes.objects import Manifest
from infra.tenancy.admission import caps, dev_pods, immutability, ownership, pods, runs


@dataclass(frozen=True, kw_only=True)
class AdmissionPoliciesArgs:
    """Facts of the whole stack; those of a team are labels of its namespace."""

    gpu_taint: Taint
    """Taint of GPU nodes."""
    registries: tuple[str, ...]
    """Allowed registries or repositories of images; none: no pod is admitted."""
    priorities: Mapping[str, int]
    """Priority classes and their values."""
    ceilings: Mapping[str, str]
    """The highest class of each tier."""
    queue_policies: tuple[Manifest, ...] = ()
    """The scheduler's policies; only Kueue can prove that it admitted a run, see docs/security.md."""
    binders: tuple[str, ...] = (KUBE_SCHEDULER,)
    """Users that may bind pods to nodes."""


def policies(args: AdmissionPoliciesArgs) -> list[Manifest]:
    """Return every policy: the queue first, audit annotations last."""
    return [
        *args.queue_policies,
        immutability.run_spec_immutable(),
        immutability.pod_spec_immutable(),
        immutability.run_status_immutable(),
        immutability.forbid_orphan_deletion(),
        pods.placement_policy(args.gpu_taint),
        pods.require_scheduler_binding(args.binders),
        pods.require_resource_requests(),
        pods.forbid_resource_claims(),
        pods.require_platform_volumes(),
        pods.require_image_digests(args.registries),
        runs.protect_environment(),
        runs.run_files_immutable(),
        runs.priority_within_tier(args.priorities, args.ceilings),
        pods.forbid_external_services(),
        dev_pods.dev_pods_are_owned(args.priorities),
        dev_pods.shells_of_owners(),
        ownership.owned_by_their_launcher(),
        ownership.submitted_as_rendered(),
        ownership.platform_record_protected(),
        caps.submitted_within_caps(),
        caps.dev_pods_within_caps(),
        runs.team_label_matches(),
        runs.audit_launches(),
    ]
