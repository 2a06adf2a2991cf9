"""The stack's VPC: subnets, NAT, endpoints, flow logs, EFA's security group; or an existing VPC, never changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws.cloudwatch as cloudwatch
import pulumi_aws.ec2 as ec2
import pulumi_aws.iam as iam
import pulumi_aws.vpc as vpc_rules

from infra.domain import naming
from infra.sections.network import MadeNetworkConfig, VpcConfig
from infra.sites.aws import addresses, efa
from infra.sites.aws.outputs import NetworkRecord, component
from infra.sites.aws.policy_documents import document
from infra.sites.aws.provider import ProviderArgs
from infra.sites.aws.run_log_access import flow_log_group

EVERYWHERE: Final = "0.0.0.0/0"
FLOW_LOG_SECONDS: Final = 60
"""Aggregation interval of flow logs in seconds: the shorter of AWS's two, for use during incidents."""


GATEWAYS: Final = ("s3",)
"""Gateway endpoints, free of charge: checkpoints, datasets and image layers are in S3."""

ENDPOINTS: Final = (
    "ec2",
    "ecr.api",
    "ecr.dkr",
    "eks",
    "eks-auth",
    "logs",
    "sqs",
    "sts",
)
"""Interface endpoints: services that nodes, add-ons and Karpenter call constantly."""

HTTPS: Final = 443


class Network(pulumi.ComponentResource):
    """A VPC; `record` holds its ids."""

    record: NetworkRecord

    def __init__(
        self,
        name: str,
        site: ProviderArgs,
        settings: MadeNetworkConfig,
        opts: pulumi.ResourceOptions,
        *,
        log_key_arn: pulumi.Input[str] | None = None,
    ) -> None:
        """Create it. `log_key_arn`: with `run_log_access.key_statement`. None: CloudWatch's own key."""
        super().__init__(naming.infra_type("AwsNetwork"), name, None, opts)
        self._name, self._site, self._settings = name, site, settings
        self._child = pulumi.ResourceOptions(parent=self)
        plan = addresses.subnets(settings.cidr, settings.zones)
        vpc = self._vpc()
        public = self._public_subnets(vpc, plan)
        private, tables = self._private_subnets(vpc, plan, self._gateways(public))
        self._endpoints(vpc, private, tables)
        self._flow_log(vpc, log_key_arn)
        self.record = NetworkRecord(
            vpc_id=vpc.id,
            cidrs=(settings.cidr,),
            private_subnets={zone: subnet.id for zone, subnet in private.items()},
            public_subnets={zone: subnet.id for zone, subnet in public.items()},
            efa_security_group=efa.security_group(f"{name}-efa", site.cluster, vpc.id, self._child),
        )
        self.register_outputs({"vpcId": vpc.id})

    def _vpc(self) -> ec2.Vpc:
        vpc = ec2.Vpc(
            f"{self._name}-vpc",
            cidr_block=self._settings.cidr,
            enable_dns_support=True,
            # Required for private DNS names of interface endpoints.
            enable_dns_hostnames=True,
            tags={"Name": self._site.cluster},
            opts=self._child,
        )
        ec2.DefaultSecurityGroup(
            f"{self._name}-default-group",
            vpc_id=vpc.id,
            ingress=[],
            egress=[],
            tags={"Name": f"{self._site.cluster}-default-unused"},
            opts=self._child,
        )
        return vpc

    def _endpoints(
        self, vpc: ec2.Vpc, private: Mapping[str, ec2.Subnet], tables: Sequence[ec2.RouteTable]
    ) -> None:
        """Create gateway endpoints, and an interface endpoint for each service."""
        name = f"{self._name}-endpoints"
        child = pulumi.ResourceOptions(parent=component("AwsEndpoints", name, self._child))
        for service in GATEWAYS:
            ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=vpc.id,
                service_name=service_name(self._site.region, service),
                vpc_endpoint_type="Gateway",
                route_table_ids=[table.id for table in tables],
                tags={"Name": f"{self._site.cluster}-{service}"},
                opts=child,
            )
        group = ec2.SecurityGroup(
            f"{name}-group",
            description="HTTPS from the VPC to AWS services",
            vpc_id=vpc.id,
            tags={"Name": f"{self._site.cluster}-endpoints"},
            opts=child,
        )
        vpc_rules.SecurityGroupIngressRule(
            f"{name}-https",
            security_group_id=group.id,
            cidr_ipv4=self._settings.cidr,
            ip_protocol="tcp",
            from_port=HTTPS,
            to_port=HTTPS,
            opts=child,
        )
        for service in ENDPOINTS:
            ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=vpc.id,
                service_name=service_name(self._site.region, service),
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=[subnet.id for subnet in private.values()],
                security_group_ids=[group.id],
                tags={"Name": f"{self._site.cluster}-{service}"},
                opts=child,
            )

    def _subnet(self, vpc: ec2.Vpc, kind: str, zone: str, cidr: str) -> ec2.Subnet:
        return ec2.Subnet(
            f"{self._name}-{kind}-{zone}",
            vpc_id=vpc.id,
            availability_zone=zone,
            cidr_block=cidr,
            tags={
                "Name": f"{self._site.cluster}-{kind}-{zone}",
                **subnet_tags(kind, self._site.cluster),
            },
            opts=self._child,
        )

    def _public_subnets(
        self, vpc: ec2.Vpc, plan: Mapping[str, addresses.ZoneAddresses]
    ) -> dict[str, ec2.Subnet]:
        internet = ec2.InternetGateway(
            f"{self._name}-internet",
            vpc_id=vpc.id,
            tags={"Name": self._site.cluster},
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
        own = public if self._settings.nat == "per-zone" else {first: public[first]}
        gateways = {}
        for zone, subnet in own.items():
            tags = {"Name": f"{self._site.cluster}-nat-{zone}"}
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
            tags={"Name": f"{self._site.cluster}-{kind}"},
            opts=self._child,
        )

    def _associate(self, kind: str, subnet: ec2.Subnet, table: ec2.RouteTable) -> None:
        ec2.RouteTableAssociation(
            f"{self._name}-{kind}",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=self._child,
        )

    def _flow_log(self, vpc: ec2.Vpc, key_arn: pulumi.Input[str] | None) -> None:
        group = cloudwatch.LogGroup(
            f"{self._name}-flows",
            name=flow_log_group(self._site.cluster),
            kms_key_id=key_arn,
            retention_in_days=self._settings.flow_log_days,
            opts=self._child,
        )
        role = iam.Role(
            f"{self._name}-flows",
            assume_role_policy=json.dumps(flow_log_trust(self._site.account)),
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
            tags={"Name": self._site.cluster},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )


def existing_network(
    name: str, cluster: str, settings: VpcConfig, opts: pulumi.ResourceOptions
) -> tuple[NetworkRecord, pulumi.Resource]:
    """Return the record of an existing VPC, and the component of what is created in it: EFA's security group."""
    made = component("AwsExistingNetwork", name, opts)
    child = pulumi.ResourceOptions(parent=made)
    record = NetworkRecord(
        vpc_id=settings.vpc_id,
        cidrs=(settings.cidr, *settings.secondary_cidrs),
        private_subnets=settings.private_subnets,
        public_subnets={},
        efa_security_group=efa.security_group(f"{name}-efa", cluster, settings.vpc_id, child),
    )
    return record, made


def service_name(region: str, service: str) -> str:
    return f"com.amazonaws.{region}.{service}"


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
