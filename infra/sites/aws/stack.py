"""The AWS stack component: a cluster with network, nodes, storage and identities in an account.

Only this module knows the order of the package's parts. It is imported only for a stack whose cluster is `eks`,
because loading pulumi_aws takes seconds.
"""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from infra.domain import naming
from infra.domain.cluster_target import ClusterTarget
from infra.domain.pools import Autoscaler, NodePool, Nodes
from infra.domain.storage import SharedStorage
from infra.sections.network import ExistingNetworkConfig
from infra.sections.storage import StorageKind
from infra.sites.aws import controller_roles, node_health, run_log_access
from infra.sites.aws.addons import AFTER_NODES, BEFORE_NODES, EFS, FSX, Addon, Addons, AddonsArgs
from infra.sites.aws.args import AwsStackArgs
from infra.sites.aws.autoscaling import ClusterAutoscaler, ClusterAutoscalerArgs
from infra.sites.aws.block_volumes import EBS, BlockVolumes
from infra.sites.aws.bucket_access import lustre_key_statement, team_buckets
from infra.sites.aws.buckets import Buckets, BucketsArgs
from infra.sites.aws.cluster import Cluster, ClusterArgs
from infra.sites.aws.creator import check_creator
from infra.sites.aws.elastic_files import EfsStorage, EfsStorageArgs
from infra.sites.aws.existing_network import ExistingNetwork, ExistingNetworkArgs
from infra.sites.aws.identity import TeamIdentity, TeamIdentityArgs
from infra.sites.aws.karpenter import Karpenter, KarpenterArgs
from infra.sites.aws.keys import Keys, KeysArgs
from infra.sites.aws.lustre import LustreStorage, LustreStorageArgs
from infra.sites.aws.network import Network, NetworkArgs
from infra.sites.aws.node_pools import NodePools, NodePoolsArgs
from infra.sites.aws.policy_documents import Statement
from infra.sites.aws.provider import aws_provider, default_tags
from infra.sites.aws.system_nodes import SystemNodes, SystemNodesArgs


class AwsStack(pulumi.ComponentResource):
    """An EKS cluster with its network, nodes, storage and identities; takes the AWS provider in `opts`.

    Order: add-ons that make a node ready, system nodes, add-ons that run on nodes, autoscalers.
    """

    site: ClusterTarget

    def __init__(self, name: str, args: AwsStackArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsFoundation"), name, None, opts)
        self._name, self._args = name, args
        self._keys = Keys(
            f"{name}-keys",
            KeysArgs(
                cluster=args.site.cluster,
                account=args.site.account,
                region=args.site.region,
                data_statements=(*self._linked_file_systems(), self._encrypted_logs()),
                protect=args.protect,
            ),
            self._own(),
        )
        network = self._make_network()
        self._network = network.record
        cluster = self._make_cluster()
        self._cluster = cluster.record
        # Nodes need routes, gateways and endpoints, which none of their inputs name.
        base = self._addons("base", BEFORE_NODES, network)
        system = self._system_nodes(base)
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
        buckets = self._make_buckets()
        identities = self._identities(buckets)
        roles = controller_roles.deploy(
            name, args, self._cluster, self._keys.data_key_arn, self._own()
        )
        outputs = {
            "region": args.site.region,
            "endpoint": self._cluster.endpoint,
            "vpcId": self._network.vpc_id,
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
            ready=[addons, *nodes, *identities.values(), *roles, *self._block_volumes(addons)],
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

    def _make_network(self) -> Network | ExistingNetwork:
        name, site, network = f"{self._name}-network", self._args.site, self._args.network
        if isinstance(network, ExistingNetworkConfig):
            used = ExistingNetworkArgs(cluster=site.cluster, settings=network.existing)
            return ExistingNetwork(name, used, self._own())
        wanted = NetworkArgs(
            cluster=site.cluster,
            account=site.account,
            region=site.region,
            settings=network,
            log_key_arn=self._keys.data_key_arn,
        )
        return Network(name, wanted, self._own())

    def _make_cluster(self) -> Cluster:
        args = self._args
        wanted = ClusterArgs(
            settings=args.cluster,
            account=args.site.account,
            region=args.site.region,
            network=self._network,
            key_arn=self._keys.cluster_key_arn,
            log_key_arn=self._keys.data_key_arn,
            members=args.members,
            protect=args.protect,
        )
        return Cluster(f"{self._name}-cluster", wanted, self._own())

    def _addons(self, moment: str, addons: tuple[Addon, ...], *needs: pulumi.Resource) -> Addons:
        wanted = AddonsArgs(cluster=self._cluster, addons=addons)
        return Addons(f"{self._name}-{moment}", wanted, self._own(*needs))

    def _drivers(self) -> tuple[Addon, ...]:
        drivers = {StorageKind.FSX: (FSX,), StorageKind.EFS: (EFS,)}
        shared = drivers.get(self._args.storage.kind, ())
        return (*shared, EBS) if self._args.block_volumes else shared

    def _system_nodes(self, base: pulumi.Resource) -> SystemNodes:
        wanted = SystemNodesArgs(
            cluster=self._cluster,
            network=self._network,
            data_key_arn=self._keys.data_key_arn,
            settings=self._args.cluster.system_nodes,
            tags=default_tags(self._args.site),
        )
        return SystemNodes(f"{self._name}-system", wanted, self._own(base))

    def _nodes(self, base: pulumi.Resource, addons: pulumi.Resource) -> list[pulumi.Resource]:
        """Create node groups, and the autoscaler that sizes them or creates nodes."""
        made: list[pulumi.Resource] = []
        if managed := self._args.rendered_as(Nodes.MANAGED):
            groups = self._node_groups(managed, base)
            made.append(groups)
            if self._args.autoscaler is Autoscaler.CLUSTER_AUTOSCALER:
                made.append(self._cluster_autoscaler(managed, groups, addons))
        if grown := self._args.rendered_as(Nodes.KARPENTER):
            made.append(self._karpenter(grown, addons))
        return made

    def _node_groups(self, pools: tuple[NodePool, ...], base: pulumi.Resource) -> NodePools:
        wanted = NodePoolsArgs(
            pools=pools,
            network=self._network,
            cluster=self._cluster,
            data_key_arn=self._keys.data_key_arn,
            metadata_access=self._args.metadata_access,
            tags=default_tags(self._args.site),
        )
        return NodePools(f"{self._name}-pools", wanted, self._own(base))

    def _cluster_autoscaler(
        self, pools: tuple[NodePool, ...], groups: NodePools, addons: pulumi.Resource
    ) -> ClusterAutoscaler:
        wanted = ClusterAutoscalerArgs(
            cluster=self._cluster,
            pools=pools,
            autoscaling_groups={pool.name: groups.autoscaling_group(pool.name) for pool in pools},
            chart=self._args.charts["clusterAutoscaler"],
            image_tag=self._args.autoscaler_tag,
        )
        return ClusterAutoscaler(f"{self._name}-autoscaler", wanted, self._in_cluster(addons))

    def _karpenter(self, pools: tuple[NodePool, ...], addons: pulumi.Resource) -> Karpenter:
        wanted = KarpenterArgs(
            pools=pools,
            network=self._network,
            cluster=self._cluster,
            data_key_arn=self._keys.data_key_arn,
            metadata_access=self._args.metadata_access,
            tags=default_tags(self._args.site),
            chart=self._args.charts["karpenter"],
            crds=self._args.charts["karpenterCrd"],
        )
        return Karpenter(f"{self._name}-karpenter", wanted, self._in_cluster(addons))

    def _make_buckets(self) -> Buckets:
        args = self._args
        wanted = BucketsArgs(
            settings=args.buckets,
            account=args.site.account,
            key_arn=self._keys.data_key_arn,
            protect=args.protect,
        )
        return Buckets(f"{self._name}-buckets", wanted, self._own())

    def _storage(self, buckets: Buckets, addons: pulumi.Resource) -> SharedStorage:
        args, storage = self._args, self._args.storage
        name, opts = f"{self._name}-storage", self._in_cluster(addons)
        if storage.fsx:
            lustre = LustreStorageArgs(
                cluster=args.site.cluster,
                teams=args.teams,
                sizes=storage.sizes,
                throughput_per_tib=storage.fsx.throughput_per_tib,
                vpc_id=self._network.vpc_id,
                subnet_id=self._network.private_subnets[storage.fsx.zone],
                cluster_security_group=self._cluster.security_group,
                key_arn=self._keys.data_key_arn,
                datasets=buckets.datasets,
                checkpoints=buckets.checkpoints,
                protect=args.protect,
            )
            return LustreStorage(name, lustre, opts)
        if storage.efs:
            efs = EfsStorageArgs(
                cluster=args.site.cluster,
                sizes=storage.sizes,
                vpc_id=self._network.vpc_id,
                subnet_ids=self._network.private_subnets,
                cluster_security_group=self._cluster.security_group,
                key_arn=self._keys.data_key_arn,
                protect=args.protect,
            )
            return EfsStorage(name, efs, opts)
        named = storage.named_class
        assert named
        return named

    def _block_volumes(self, addons: pulumi.Resource) -> list[pulumi.Resource]:
        if not self._args.block_volumes:
            return []
        name, key = f"{self._name}-block-volumes", self._keys.data_key_arn
        return [BlockVolumes(name, key, self._in_cluster(addons))]

    def _log_outputs(self) -> dict[str, str]:
        if self._args.run_logs is None:
            return {}
        return {"logGroup": run_log_access.group_name(self._args.site.cluster)}

    def _identities(self, buckets: Buckets) -> dict[str, TeamIdentity]:
        """Create each team's role, which is deleted before the buckets that it may use."""
        args = self._args
        return {
            team: TeamIdentity(
                f"{self._name}-team-{team}",
                TeamIdentityArgs(
                    team=team,
                    cluster=self._cluster,
                    buckets=buckets.names,
                    key_arn=self._keys.data_key_arn,
                ),
                self._own(buckets),
            )
            for team in args.teams
        }


def deploy(name: str, args: AwsStackArgs, parent: pulumi.Resource | None = None) -> ClusterTarget:
    aws = aws_provider(f"{name}-provider", args.site, parent)
    check_creator(args.cluster, args.members, aws)
    return AwsStack(name, args, pulumi.ResourceOptions(parent=parent, providers=[aws])).site
