"""VPCs and what is in them."""

from __future__ import annotations

from typing import Any

from tests.aws.moto_cloud.cloud import (
    ACCOUNT,
    REGION,
    Cloud,
    document,
    name_of,
    specification,
    tags_of,
)
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates


def arn(kind: str, id_: str) -> str:
    """ARN of an EC2 resource."""
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/{id_}"


def pascal(value: Any) -> Any:
    """Pulumi's camelCase keys as the EC2 API has them, all the way down."""
    if isinstance(value, dict):
        return {key[0].upper() + key[1:]: pascal(item) for key, item in value.items()}
    return [pascal(item) for item in value] if isinstance(value, list) else value


@creates("aws:ec2/vpc:Vpc")
def vpc(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.ec2.create_vpc(
        CidrBlock=inputs["cidrBlock"], TagSpecifications=specification("vpc", inputs)
    )["Vpc"]
    id_ = made["VpcId"]
    for attribute, key in (
        ("EnableDnsSupport", "enableDnsSupport"),
        ("EnableDnsHostnames", "enableDnsHostnames"),
    ):
        if key in inputs:
            cloud.ec2.modify_vpc_attribute(VpcId=id_, **{attribute: {"Value": inputs[key]}})
    return id_, {"arn": arn("vpc", id_), "defaultSecurityGroupId": _default_group(id_, cloud)}


@creates("aws:ec2/subnet:Subnet")
def subnet(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    # Moto would make a subnet in any zone, and a security group in any VPC.
    zones = cloud.ec2.describe_availability_zones()["AvailabilityZones"]
    if inputs["availabilityZone"] not in (names := [zone["ZoneName"] for zone in zones]):
        raise LookupError(f"{inputs['availabilityZone']} is none of {REGION}'s zones {names}")
    made = cloud.ec2.create_subnet(
        VpcId=inputs["vpcId"],
        CidrBlock=inputs["cidrBlock"],
        AvailabilityZone=inputs["availabilityZone"],
        TagSpecifications=specification("subnet", inputs),
    )["Subnet"]
    return made["SubnetId"], {"arn": made["SubnetArn"]}


@creates("aws:ec2/internetGateway:InternetGateway")
def internet_gateway(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.ec2.create_internet_gateway(
        TagSpecifications=specification("internet-gateway", inputs)
    )["InternetGateway"]
    id_ = made["InternetGatewayId"]
    cloud.ec2.attach_internet_gateway(InternetGatewayId=id_, VpcId=inputs["vpcId"])
    return id_, {"arn": arn("internet-gateway", id_)}


@creates("aws:ec2/eip:Eip")
def eip(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.ec2.allocate_address(
        Domain=inputs["domain"], TagSpecifications=specification("elastic-ip", inputs)
    )
    return made["AllocationId"], {
        "allocationId": made["AllocationId"],
        "publicIp": made["PublicIp"],
    }


@creates("aws:ec2/natGateway:NatGateway")
def nat_gateway(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cloud.ec2.describe_addresses(AllocationIds=[inputs["allocationId"]])
    made = cloud.ec2.create_nat_gateway(
        SubnetId=inputs["subnetId"],
        AllocationId=inputs["allocationId"],
        TagSpecifications=specification("natgateway", inputs),
    )["NatGateway"]
    return made["NatGatewayId"], {}


@creates("aws:ec2/routeTable:RouteTable")
def route_table(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.ec2.create_route_table(
        VpcId=inputs["vpcId"], TagSpecifications=specification("route-table", inputs)
    )["RouteTable"]
    id_ = made["RouteTableId"]
    return id_, {"arn": arn("route-table", id_)}


@creates("aws:ec2/route:Route")
def route(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    target = (
        {"NatGatewayId": inputs["natGatewayId"]}
        if "natGatewayId" in inputs
        else {"GatewayId": inputs["gatewayId"]}
    )
    if "NatGatewayId" in target:
        cloud.ec2.describe_nat_gateways(NatGatewayIds=[inputs["natGatewayId"]])
    else:
        cloud.ec2.describe_internet_gateways(InternetGatewayIds=[inputs["gatewayId"]])
    cloud.ec2.create_route(
        RouteTableId=inputs["routeTableId"],
        DestinationCidrBlock=inputs["destinationCidrBlock"],
        **target,
    )
    return f"r-{inputs['routeTableId']}-{inputs['destinationCidrBlock']}", {}


@creates("aws:ec2/routeTableAssociation:RouteTableAssociation")
def route_table_association(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.ec2.associate_route_table(
        RouteTableId=inputs["routeTableId"], SubnetId=inputs["subnetId"]
    )
    return made["AssociationId"], {}


@creates("aws:ec2/vpcEndpoint:VpcEndpoint")
def vpc_endpoint(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    request: dict[str, Any] = {
        "VpcId": inputs["vpcId"],
        "ServiceName": inputs["serviceName"],
        "VpcEndpointType": inputs.get("vpcEndpointType", "Gateway"),
        "TagSpecifications": specification("vpc-endpoint", inputs),
    }
    if "policy" in inputs:
        document(inputs["policy"])
        request["PolicyDocument"] = inputs["policy"]
    if request["VpcEndpointType"] == "Gateway":
        if not inputs.get("routeTableIds"):
            raise ValueError("a gateway endpoint without route tables carries nothing")
        cloud.ec2.describe_route_tables(RouteTableIds=inputs["routeTableIds"])
        request["RouteTableIds"] = inputs["routeTableIds"]
    else:
        cloud.security_groups(inputs["securityGroupIds"])
        zones = [one["AvailabilityZone"] for one in cloud.subnets(inputs["subnetIds"])]
        if len(zones) != len(set(zones)):
            raise ValueError(f"an endpoint takes one subnet of a zone, got {zones}")
        request |= {
            "SubnetIds": inputs["subnetIds"],
            "SecurityGroupIds": inputs["securityGroupIds"],
            "PrivateDnsEnabled": inputs.get("privateDnsEnabled", False),
        }
    made = cloud.ec2.create_vpc_endpoint(**request)["VpcEndpoint"]
    return made["VpcEndpointId"], {"arn": arn("vpc-endpoint", made["VpcEndpointId"])}


@creates("aws:ec2/flowLog:FlowLog")
def flow_log(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cloud.log_group(inputs["logDestination"])
    cloud.role(inputs["iamRoleArn"], trusting="vpc-flow-logs.amazonaws.com")
    made = cloud.ec2.create_flow_logs(
        ResourceIds=[inputs["vpcId"]],
        ResourceType="VPC",
        TrafficType=inputs["trafficType"],
        LogDestinationType=inputs.get("logDestinationType", "cloud-watch-logs"),
        LogDestination=inputs["logDestination"],
        DeliverLogsPermissionArn=inputs["iamRoleArn"],
        MaxAggregationInterval=inputs.get("maxAggregationInterval", 600),
        TagSpecifications=specification("vpc-flow-log", inputs),
    )
    if made["Unsuccessful"]:
        raise ValueError(f"flow log refused: {made['Unsuccessful']}")
    id_ = made["FlowLogIds"][0]
    return id_, {"arn": arn("vpc-flow-log", id_)}


@creates("aws:ec2/securityGroup:SecurityGroup")
def security_group(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = name_of(inputs)
    cloud.ec2.describe_vpcs(VpcIds=[inputs["vpcId"]])
    id_ = cloud.ec2.create_security_group(
        GroupName=name,
        Description=inputs.get("description", "Managed by Pulumi"),
        VpcId=inputs["vpcId"],
        TagSpecifications=specification("security-group", inputs),
    )["GroupId"]
    # Unlike EC2, the provider leaves a new group without the rule that lets everything out.
    _replace_rules(id_, inputs, cloud)
    return id_, {"arn": arn("security-group", id_), "name": name}


@creates("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
def default_security_group(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    id_ = _default_group(inputs["vpcId"], cloud)
    cloud.ec2.create_tags(Resources=[id_], Tags=tags_of(inputs))
    _replace_rules(id_, inputs, cloud)
    return id_, {"arn": arn("security-group", id_)}


@creates("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
def ingress_rule(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.ec2.authorize_security_group_ingress(
        GroupId=inputs["securityGroupId"],
        IpPermissions=[_rule(inputs, cloud)],
        TagSpecifications=specification("security-group-rule", inputs),
    )
    return made["SecurityGroupRules"][0]["SecurityGroupRuleId"], {}


@creates("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
def egress_rule(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.ec2.authorize_security_group_egress(
        GroupId=inputs["securityGroupId"],
        IpPermissions=[_rule(inputs, cloud)],
        TagSpecifications=specification("security-group-rule", inputs),
    )
    return made["SecurityGroupRules"][0]["SecurityGroupRuleId"], {}


def _default_group(vpc_id: str, cloud: Cloud) -> str:
    found = cloud.ec2.describe_security_groups(
        Filters=[
            {"Name": "vpc-id", "Values": [vpc_id]},
            {"Name": "group-name", "Values": ["default"]},
        ]
    )["SecurityGroups"]
    id_: str = found[0]["GroupId"]
    return id_


def _rule(inputs: Inputs, cloud: Cloud) -> dict[str, Any]:
    """One rule of the API, from a rule resource."""
    protocol = str(inputs["ipProtocol"])
    rule: dict[str, Any] = {"IpProtocol": protocol}
    if protocol != "-1":
        rule |= {"FromPort": inputs["fromPort"], "ToPort": inputs["toPort"]}
    if "cidrIpv4" in inputs:
        rule["IpRanges"] = [{"CidrIp": inputs["cidrIpv4"]}]
    if "referencedSecurityGroupId" in inputs:
        cloud.security_groups([inputs["referencedSecurityGroupId"]])
        rule["UserIdGroupPairs"] = [{"GroupId": inputs["referencedSecurityGroupId"]}]
    return rule


def _replace_rules(id_: str, inputs: Inputs, cloud: Cloud) -> None:
    """The group's rules become the inline ones of the resource, perhaps none."""
    (group,) = cloud.security_groups([id_])
    if group["IpPermissions"]:
        cloud.ec2.revoke_security_group_ingress(GroupId=id_, IpPermissions=group["IpPermissions"])
    if group["IpPermissionsEgress"]:
        cloud.ec2.revoke_security_group_egress(
            GroupId=id_, IpPermissions=group["IpPermissionsEgress"]
        )
    for rule in inputs.get("ingress", []):
        cloud.ec2.authorize_security_group_ingress(GroupId=id_, IpPermissions=[_inline(id_, rule)])
    for rule in inputs.get("egress", []):
        cloud.ec2.authorize_security_group_egress(GroupId=id_, IpPermissions=[_inline(id_, rule)])


def _inline(group: str, rule: dict[str, Any]) -> dict[str, Any]:
    pairs = [*rule.get("securityGroups", []), *([group] if rule.get("self") else [])]
    return {
        "IpProtocol": str(rule["protocol"]),
        "FromPort": rule["fromPort"],
        "ToPort": rule["toPort"],
        "IpRanges": [{"CidrIp": cidr} for cidr in rule.get("cidrBlocks", [])],
        "UserIdGroupPairs": [{"GroupId": pair} for pair in pairs],
    }
