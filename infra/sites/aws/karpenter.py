"""Karpenter: creates nodes of `karpenter` pools when queued gangs need them.

Finalizers hold each node until its instance has terminated, and each EC2NodeClass until its nodes have. So that a
destroy never waits for a deleted controller, the objects depend on the controller's release, and that on its role,
its queue and the CRDs' release. Destroy order: runs, NodePools (their nodes drain and terminate), EC2NodeClasses,
controller, permissions, CRDs. A NodePool's `terminationGracePeriod` bounds the drain and is shorter than the
timeout of its deletion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws.eks as aws_eks
import pulumi_aws.iam as iam

from infra.domain import naming
from infra.domain.pools import NodePool
from infra.kubernetes import helm, system_nodes
from infra.kubernetes.helm import Chart
from infra.kubernetes.resources import KubernetesObject
from infra.sites.aws import karpenter_manifests, node_health, pod_identity
from infra.sites.aws.interruption import InterruptionQueue
from infra.sites.aws.karpenter_access import ControllerScope, controller_policy
from infra.sites.aws.outputs import ClusterRecord, Place
from infra.sites.aws.pool_nodes import placement_group

NAMESPACE: Final = "kube-system"
"""The API server's fairness rules treat leases of this namespace as system traffic."""
SERVICE_ACCOUNT: Final = "karpenter"

_NODES_GONE: Final = pulumi.CustomTimeouts(delete="45m")
"""Draining takes up to 30 minutes, terminating an instance with eight GPUs a few more."""


def values(cluster: ClusterRecord, queue: pulumi.Input[str]) -> dict[str, Any]:
    memory = {"memory": "1Gi"}
    return {
        "serviceAccount": {"name": SERVICE_ACCOUNT},
        "settings": {
            "clusterName": cluster.name,
            "clusterEndpoint": cluster.endpoint,
            "interruptionQueue": queue,
            "featureGates": node_health.KARPENTER_FEATURES,
        },
        **system_nodes.PLACEMENT,
        "controller": {"resources": {"requests": {"cpu": "1"} | memory, "limits": memory}},
    }


class Karpenter(pulumi.ComponentResource):
    """Queue, permissions, both releases, and the objects of each pool.

    The controller runs on the system nodes: pass those and the add-ons in `depends_on`.
    """

    def __init__(
        self,
        name: str,
        pools: Sequence[NodePool],
        place: Place,
        charts: Mapping[str, Chart],
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Create them. `charts`: karpenter, and karpenterCrd with the CRDs, which the former never upgrades."""
        super().__init__(naming.infra_type("AwsKarpenter"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        queue = InterruptionQueue(f"{name}-interruption", own)
        permissions = self._permissions(name, pools, place, queue)
        crds = helm.release(
            f"{name}-crd",
            charts["karpenterCrd"],
            release_name="karpenter-crd",
            namespace=NAMESPACE,
            values={},
            opts=own,
        )
        controller = helm.release(
            f"{name}-controller",
            charts["karpenter"],
            release_name="karpenter",
            namespace=NAMESPACE,
            skip_crds=True,
            values=values(place.cluster, queue.name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[crds, queue, *permissions]),
        )
        profile = iam.InstanceProfile(f"{name}-nodes", role=place.cluster.node_role_name, opts=own)
        for pool in pools:
            self._pool(name, pool, place, profile, controller)
        self.register_outputs({"queue": queue.name})

    def _pool(
        self,
        name: str,
        pool: NodePool,
        place: Place,
        profile: iam.InstanceProfile,
        controller: pulumi.Resource,
    ) -> None:
        """The node class depends on the controller, the NodePool on the node class."""
        together = placement_group(name, pool, place, pulumi.ResourceOptions(parent=self))
        node_class = KubernetesObject(
            f"{name}-{pool.name}-class",
            karpenter_manifests.node_class(pool, place, profile.name),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[controller, *([together] if together else [])],
                custom_timeouts=_NODES_GONE,
            ),
        )
        KubernetesObject(
            f"{name}-{pool.name}",
            karpenter_manifests.node_pool(pool),
            pulumi.ResourceOptions(
                parent=self, depends_on=[node_class], custom_timeouts=_NODES_GONE
            ),
        )

    def _permissions(
        self, name: str, pools: Sequence[NodePool], place: Place, queue: InterruptionQueue
    ) -> list[pulumi.Resource]:
        """Create the controller's role and its association with the service account."""
        own = pulumi.ResourceOptions(parent=self)
        account, description = (NAMESPACE, SERVICE_ACCOUNT), f"Karpenter in {place.cluster.name}"
        role = pod_identity.role_of(f"{name}-role", place.cluster, account, description, own)
        document = policy_document(pools, place, queue.arn)
        policy = iam.RolePolicy(f"{name}-policy", role=role.name, policy=document, opts=own)
        association = aws_eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=place.cluster.name,
            namespace=NAMESPACE,
            service_account=SERVICE_ACCOUNT,
            role_arn=role.arn,
            opts=own,
        )
        return [policy, association]


def policy_document(
    pools: Sequence[NodePool], place: Place, queue_arn: pulumi.Input[str]
) -> pulumi.Output[str]:
    """Return the controller's policy once its resource ids are known."""

    def write(ids: dict[str, Any]) -> str:
        scope = ControllerScope(
            cluster=place.cluster.name,
            region=place.cluster.region,
            account=place.cluster.account,
            subnets=sorted(set(ids["subnets"])),
            security_groups=sorted(set(ids["groups"])),
            placement_groups=[place.own_name(pool) for pool in pools if pool.placement_group],
            reservations=sorted({p.reservation.id for p in pools if p.reservation}),
            node_role_arn=ids["role"],
            queue_arn=ids["queue"],
            data_key_arn=ids["key"],
        )
        return json.dumps(controller_policy(scope))

    return pulumi.Output.all(
        subnets=[place.subnet(pool) for pool in pools],
        groups=[group for pool in pools for group in place.security_groups(pool)],
        role=place.cluster.node_role_arn,
        queue=queue_arn,
        key=place.data_key_arn,
    ).apply(write)
