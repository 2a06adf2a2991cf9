"""The stack's VPC: subnets, NAT, endpoints, flow logs, and EFA's security group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_aws.cloudwatch as cloudwatch
import pulumi_aws.ec2 as ec2
import pulumi_aws.iam as iam

from infra.domain import naming
from infra.sections.network import MadeNetworkConfig
from infra.sites.aws import addresses
from infra.sites.aws.efa import EfaSecurityGroup, EfaSecurityGroupArgs
from infra.sites.aws.endpoints import ENDPOINTS, Endpoints, EndpointsArgs
from infra.sites.aws.outputs import NetworkRecord
from infra.sites.aws.policy_documents import document
from infra.sites.aws.run_log_access import flow_log_group

EVERYWHERE: Final = "0.0.0.0/0"
FLOW_LOG_SECONDS: Final = 60
"""Aggregation interval of flow logs in seconds: the shorter of AWS's two, for use during incidents."""


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    cluster: str
    """Name of the cluster in it; subnets are tagged for its load balancers and Karpenter."""
    region: str
    settings: MadeNetworkConfig
    account: str
    """12 digits."""
    log_key_arn: pulumi.Input[str] | None = None
    """KMS key of the flow logs' group, with `run_log_access.key_statement`. None: CloudWatch's own."""
    endpoint_services: tuple[str, ...] = ENDPOINTS
    """AWS services that nodes reach without NAT, by the last part of their endpoints' names."""


class Network(pulumi.ComponentResource):
    """A VPC; `record` holds its ids."""

    record: NetworkRecord

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsNetwork"), name, None, opts)
        self._name = name
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        plan = addresses.subnets(args.settings.cidr, args.settings.zones)
        vpc = self._vpc()
        public = self._public_subnets(vpc, plan)
        private, tables = self._private_subnets(vpc, plan, self._gateways(public))
        self._endpoints(vpc, private, tables)
        self._flow_log(vpc)
        efa = EfaSecurityGroup(
            f"{name}-efa", EfaSecurityGroupArgs(cluster=args.cluster, vpc_id=vpc.id), self._child
        )
        self.record = NetworkRecord(
            vpc_id=vpc.id,
            cidrs=(args.settings.cidr,),
            private_subnets={zone: subnet.id for zone, subnet in private.items()},
            public_subnets={zone: subnet.id for zone, subnet in public.items()},
            efa_security_group=efa.group_id,
        )
        self.register_outputs({"vpcId": vpc.id})

    def _vpc(self) -> ec2.Vpc:
        vpc = ec2.Vpc(
            f"{self._name}-vpc",
            cidr_block=self._args.settings.cidr,
            enable_dns_support=True,
            # Required for private DNS names of interface endpoints.
            enable_dns_hostnames=True,
            tags={"Name": self._args.cluster},
            opts=self._child,
        )
        ec2.DefaultSecurityGroup(
            f"{self._name}-default-group",
            vpc_id=vpc.id,
            ingress=[],
            egress=[],
            tags={"Name": f"{self._args.cluster}-default-unused"},
            opts=self._child,
        )
        return vpc

    def _endpoints(
        self, vpc: ec2.Vpc, private: Mapping[str, ec2.Subnet], tables: Sequence[ec2.RouteTable]
    ) -> None:
        Endpoints(
            f"{self._name}-endpoints",
            EndpointsArgs(
                cluster=self._args.cluster,
                region=self._args.region,
                vpc_id=vpc.id,
                cidr=self._args.settings.cidr,
                subnets=tuple(subnet.id for subnet in private.values()),
                route_tables=tuple(table.id for table in tables),
                services=self._args.endpoint_services,
            ),
            self._child,
        )

    def _subnet(self, vpc: ec2.Vpc, kind: str, zone: str, cidr: str) -> ec2.Subnet:
        return ec2.Subnet(
            f"{self._name}-{kind}-{zone}",
            vpc_id=vpc.id,
            availability_zone=zone,
            cidr_block=cidr,
            tags={
                "Name": f"{self._args.cluster}-{kind}-{zone}",
                **subnet_tags(kind, self._args.cluster),
            },
            opts=self._child,
        )

    def _public_subnets(
        self, vpc: ec2.Vpc, plan: Mapping[str, addresses.ZoneAddresses]
    ) -> dict[str, ec2.Subnet]:
        internet = ec2.InternetGateway(
            f"{self._name}-internet",
            vpc_id=vpc.id,
            tags={"Name": self._args.cluster},
            opts=self._child,
        )
        table = self._route_table(vpc, "public")
        ec2.Route(
            f"{self._name}-public-out",
            route_table_id=table.id,
            destination_cidr_block=EVERYWHERE,
            gateway_id=internet.id,
            opts=self._child,
        )
        subnets = {}
        for zone, planned in plan.items():
            subnets[zone] = self._subnet(vpc, "public", zone, planned.public)
            self._associate(f"public-{zone}", subnets[zone], table)
        return subnets

    def _gateways(self, public: Mapping[str, ec2.Subnet]) -> dict[str, ec2.NatGateway]:
        first = next(iter(public))
        own = public if self._args.settings.nat == "per-zone" else {first: public[first]}
        gateways = {}
        for zone, subnet in own.items():
            tags = {"Name": f"{self._args.cluster}-nat-{zone}"}
            address = ec2.Eip(f"{self._name}-nat-{zone}", domain="vpc", tags=tags, opts=self._child)
            gateways[zone] = ec2.NatGateway(
                f"{self._name}-nat-{zone}",
                subnet_id=subnet.id,
                allocation_id=address.allocation_id,
                tags=tags,
                opts=self._child,
            )
        return {zone: gateways.get(zone, gateways[first]) for zone in public}

    def _private_subnets(
        self,
        vpc: ec2.Vpc,
        plan: Mapping[str, addresses.ZoneAddresses],
        gateways: Mapping[str, ec2.NatGateway],
    ) -> tuple[dict[str, ec2.Subnet], list[ec2.RouteTable]]:
        subnets, tables = {}, []
        for zone, planned in plan.items():
            table = self._route_table(vpc, f"private-{zone}")
            ec2.Route(
                f"{self._name}-private-{zone}-out",
                route_table_id=table.id,
                destination_cidr_block=EVERYWHERE,
                nat_gateway_id=gateways[zone].id,
                opts=self._child,
            )
            subnets[zone] = self._subnet(vpc, "private", zone, planned.private)
            self._associate(f"private-{zone}", subnets[zone], table)
            tables.append(table)
        return subnets, tables

    def _route_table(self, vpc: ec2.Vpc, kind: str) -> ec2.RouteTable:
        return ec2.RouteTable(
            f"{self._name}-{kind}",
            vpc_id=vpc.id,
            tags={"Name": f"{self._args.cluster}-{kind}"},
            opts=self._child,
        )

    def _associate(self, kind: str, subnet: ec2.Subnet, table: ec2.RouteTable) -> None:
        ec2.RouteTableAssociation(
            f"{self._name}-{kind}",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=self._child,
        )

    def _flow_log(self, vpc: ec2.Vpc) -> None:
        group = cloudwatch.LogGroup(
            f"{self._name}-flows",
            name=flow_log_group(self._args.cluster),
            kms_key_id=self._args.log_key_arn,
            retention_in_days=self._args.settings.flow_log_days,
            opts=self._child,
        )
        role = iam.Role(
            f"{self._name}-flows",
            assume_role_policy=json.dumps(flow_log_trust(self._args.account)),
            opts=self._child,
        )
        policy = iam.RolePolicy(
            f"{self._name}-flows",
            role=role.name,
            policy=group.arn.apply(lambda arn: json.dumps(flow_log_policy(arn))),
            opts=self._child,
        )
        ec2.FlowLog(
            f"{self._name}-flows",
            vpc_id=vpc.id,
            traffic_type="ALL",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            max_aggregation_interval=FLOW_LOG_SECONDS,
            tags={"Name": self._args.cluster},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )


def subnet_tags(kind: str, cluster: str) -> dict[str, str]:
    """Return the tags by which load balancer controllers and Karpenter find subnets."""
    if kind == "public":
        return {"kubernetes.io/role/elb": "1"}
    return {"kubernetes.io/role/internal-elb": "1", naming.KARPENTER_DISCOVERY: cluster}


def flow_log_trust(account: str) -> dict[str, Any]:
    """Return the trust of the flow logs' role: the service on behalf of this account only."""
    return document(
        {
            "Effect": "Allow",
            "Action": "sts:AssumeRole",
            "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
            "Condition": {"StringEquals": {"aws:SourceAccount": account}},
        }
    )


def flow_log_policy(log_group_arn: str) -> dict[str, Any]:
    """Return the policy of the flow logs' role: write to its own group."""
    return document(
        {
            "Effect": "Allow",
            "Action": [
                "logs:CreateLogStream",
                "logs:PutLogEvents",
                "logs:DescribeLogStreams",
            ],
            "Resource": [log_group_arn, f"{log_group_arn}:*"],
        },
        {"Effect": "Allow", "Action": "logs:DescribeLogGroups", "Resource": "*"},
    )
