"""The AWS stack component: a cluster with network, nodes, storage and identities in an account.

Only this module knows the order of the package's parts. It is imported only for a stack whose cluster is `eks`,
because loading pulumi_aws takes seconds.
"""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from infra.domain import naming
from infra.domain.cluster_target import ClusterTarget
from infra.domain.pools import Autoscaler, Nodes
from infra.domain.storage import SharedStorage
from infra.sections.network import ExistingNetworkConfig
from infra.sections.storage import StorageKind
from infra.sites.aws import controller_roles, node_health, run_log_access
from infra.sites.aws.addons import AFTER_NODES, BEFORE_NODES, EFS, FSX, Addon, Addons
from infra.sites.aws.args import AwsStackArgs
from infra.sites.aws.autoscaling import ClusterAutoscaler
from infra.sites.aws.block_volumes import EBS, block_volumes
from infra.sites.aws.bucket_access import lustre_key_statement, team_buckets
from infra.sites.aws.buckets import Buckets
from infra.sites.aws.cluster import Cluster
from infra.sites.aws.creator import check_creator
from infra.sites.aws.elastic_files import EfsStorage
from infra.sites.aws.identity import TeamIdentity
from infra.sites.aws.karpenter import Karpenter
from infra.sites.aws.keys import Keys
from infra.sites.aws.lustre import LustreStorage
from infra.sites.aws.network import Network, existing_network
from infra.sites.aws.node_pools import NodePools
from infra.sites.aws.outputs import NetworkRecord, Place
from infra.sites.aws.policy_documents import Statement
from infra.sites.aws.provider import aws_provider, default_tags
from infra.sites.aws.system_nodes import system_nodes


class AwsStack(pulumi.ComponentResource):
    """An EKS cluster with its network, nodes, storage and identities; takes the AWS provider in `opts`.

    Order: add-ons that make a node ready, system nodes, add-ons that run on nodes, autoscalers.
    """

    site: ClusterTarget

    def __init__(self, name: str, args: AwsStackArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsFoundation"), name, None, opts)
        self._name, self._args = name, args
        keys = Keys(
            f"{name}-keys",
            args.site,
            self._own(),
            data_statements=(*self._linked_file_systems(), self._encrypted_logs()),
            protect=args.protect,
        )
        record, network = self._network(keys)
        cluster = Cluster(
            f"{name}-cluster",
            args.site,
            args.cluster,
            record,
            self._own(),
            key_arn=keys.cluster_key_arn,
            log_key_arn=keys.data_key_arn,
            members=args.members,
            protect=args.protect,
        )
        self._cluster = cluster.record
        self._place = Place(
            network=record,
            cluster=cluster.record,
            data_key_arn=keys.data_key_arn,
            metadata_access=args.metadata_access,
            tags=default_tags(args.site),
        )
        # Nodes need routes, gateways and endpoints, which none of their inputs name.
        base = self._addons("base", BEFORE_NODES, network)
        system = system_nodes(
            f"{name}-system", args.cluster.system_nodes, self._place, self._own(base)
        )
        agent = node_health.monitoring_agent(args.pools, args.dcgm_address)
        addons = self._addons("addons", (*AFTER_NODES, agent, *self._drivers()), system)
        self._kubernetes = k8s.Provider(
            "cluster",
            kubeconfig=self._cluster.kubeconfig,
            cluster_identifier=self._cluster.identity,
            enable_server_side_apply=True,
            # A destroy needs access to the cluster until the last object is deleted.
            opts=self._own(system, cluster),
        )
        nodes = self._nodes(base, addons)
        buckets = Buckets(
            f"{name}-buckets",
            args.buckets,
            args.site.account,
            keys.data_key_arn,
            self._own(),
            protect=args.protect,
        )
        # Each team's role is deleted before the buckets that it may use.
        identities = {
            team: TeamIdentity(
                f"{name}-team-{team}",
                team,
                self._cluster,
                buckets.names,
                keys.data_key_arn,
                self._own(buckets),
            )
            for team in args.teams
        }
        roles = controller_roles.deploy(name, args, self._cluster, keys.data_key_arn, self._own())
        if args.block_volumes:
            where, opts = f"{name}-block-volumes", self._in_cluster(addons)
            roles.append(block_volumes(where, keys.data_key_arn, opts))
        outputs = {
            "region": args.site.region,
            "endpoint": self._cluster.endpoint,
            "vpcId": record.vpc_id,
            "buckets": {
                "datasets": buckets.datasets.name,
                "checkpoints": buckets.checkpoints.name,
                "artifacts": buckets.artifacts.name,
                "logs": buckets.logs.name,
            },
            **self._log_outputs(),
            "teamRoles": {team: identity.role_arn for team, identity in identities.items()},
        }
        self.site = ClusterTarget(
            kubernetes=self._kubernetes,
            kubeconfig=self._cluster.kubeconfig,
            # A final save still writes to the team's bucket, and only pods that start after their role's
            # association get credentials.
            ready=[addons, *nodes, *identities.values(), *roles],
            storage=self._storage(buckets, addons),
            outputs=outputs,
        )
        self.register_outputs(outputs)

    def _own(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needs))

    def _in_cluster(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options of parts that also have objects in the cluster."""
        return pulumi.ResourceOptions.merge(
            self._own(*needs), pulumi.ResourceOptions(providers=[self._kubernetes])
        )

    def _linked_file_systems(self) -> tuple[Statement, ...]:
        """Return the data key's statements for FSx, which reads and writes the linked buckets."""
        if self._args.storage.fsx is None:
            return ()
        site, names = self._args.site, team_buckets(self._args.buckets.prefix)
        linked = (names.datasets, names.checkpoints)
        return (lustre_key_statement(site.account, site.region, linked),)

    def _encrypted_logs(self) -> Statement:
        """Return the data key's statement for CloudWatch, which stores logs."""
        site = self._args.site
        return run_log_access.key_statement(site.account, site.region, site.cluster)

    def _network(self, keys: Keys) -> tuple[NetworkRecord, pulumi.Resource]:
        """Return the network's record, and what waits for it."""
        name, site, settings = f"{self._name}-network", self._args.site, self._args.network
        if isinstance(settings, ExistingNetworkConfig):
            return existing_network(name, site.cluster, settings.existing, self._own())
        made = Network(name, site, settings, self._own(), log_key_arn=keys.data_key_arn)
        return made.record, made

    def _addons(self, moment: str, addons: tuple[Addon, ...], *needs: pulumi.Resource) -> Addons:
        return Addons(f"{self._name}-{moment}", self._cluster, addons, self._own(*needs))

    def _drivers(self) -> tuple[Addon, ...]:
        drivers = {StorageKind.FSX: (FSX,), StorageKind.EFS: (EFS,)}
        shared = drivers.get(self._args.storage.kind, ())
        return (*shared, EBS) if self._args.block_volumes else shared

    def _nodes(self, base: pulumi.Resource, addons: pulumi.Resource) -> list[pulumi.Resource]:
        """Create node groups, and the autoscaler that sizes them or creates nodes."""
        name, args = self._name, self._args
        made: list[pulumi.Resource] = []
        if managed := args.rendered_as(Nodes.MANAGED):
            groups = NodePools(f"{name}-pools", managed, self._place, self._own(base))
            made.append(groups)
            if args.autoscaler is Autoscaler.CLUSTER_AUTOSCALER:
                made.append(
                    ClusterAutoscaler(
                        f"{name}-autoscaler",
                        managed,
                        {pool.name: groups.autoscaling_group(pool.name) for pool in managed},
                        self._cluster,
                        args.charts["clusterAutoscaler"],
                        args.autoscaler_tag,
                        self._in_cluster(addons),
                    )
                )
        if grown := args.rendered_as(Nodes.KARPENTER):
            opts = self._in_cluster(addons)
            made.append(Karpenter(f"{name}-karpenter", grown, self._place, args.charts, opts))
        return made

    def _storage(self, buckets: Buckets, addons: pulumi.Resource) -> SharedStorage:
        args, storage = self._args, self._args.storage
        name, opts, keep = f"{self._name}-storage", self._in_cluster(addons), args.protect
        if storage.fsx:
            return LustreStorage(
                name, self._place, storage, args.teams, buckets, opts, protect=keep
            )
        if storage.efs:
            return EfsStorage(name, self._place, storage.sizes, opts, protect=keep)
        named = storage.named_class
        assert named
        return named

    def _log_outputs(self) -> dict[str, str]:
        if self._args.run_logs is None:
            return {}
        return {"logGroup": run_log_access.group_name(self._args.site.cluster)}


def deploy(name: str, args: AwsStackArgs, parent: pulumi.Resource | None = None) -> ClusterTarget:
    aws = aws_provider(f"{name}-provider", args.site, parent)
    check_creator(args.cluster, args.members, aws)
    return AwsStack(name, args, pulumi.ResourceOptions(parent=parent, providers=[aws])).site
