"""Look-ups of the AWS provider."""

from __future__ import annotations

from typing import Any

from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud
from tests.aws.moto_cloud.registry import Inputs, Outputs, answers


@answers("aws:index/getCallerIdentity:getCallerIdentity")
def caller_identity(args: Inputs, cloud: Cloud) -> Outputs:
    caller = cloud.client("sts").get_caller_identity()
    return {
        "accountId": caller["Account"],
        "arn": caller["Arn"],
        "userId": caller["UserId"],
        "id": caller["Account"],
    }


@answers("aws:index/getAvailabilityZones:getAvailabilityZones")
def availability_zones(args: Inputs, cloud: Cloud) -> Outputs:
    zones: list[dict[str, Any]] = cloud.ec2.describe_availability_zones()["AvailabilityZones"]
    return {
        "id": REGION,
        "names": [zone["ZoneName"] for zone in zones],
        "zoneIds": [zone["ZoneId"] for zone in zones],
    }


@answers("aws:index/getRegion:getRegion")
def region(args: Inputs, cloud: Cloud) -> Outputs:
    return {"id": REGION, "name": REGION, "region": REGION}


@answers("aws:index/getPartition:getPartition")
def partition(args: Inputs, cloud: Cloud) -> Outputs:
    return {"id": "aws", "partition": "aws", "dnsSuffix": "amazonaws.com"}


@answers("aws:eks/getClusters:getClusters")
def clusters(args: Inputs, cloud: Cloud) -> Outputs:
    return {"id": REGION, "names": cloud.client("eks").list_clusters()["clusters"]}


@answers("aws:ssm/getParameter:getParameter")
def parameter(args: Inputs, cloud: Cloud) -> Outputs:
    found = cloud.client("ssm").get_parameter(Name=args["name"])["Parameter"]
    return {
        "id": args["name"],
        "name": args["name"],
        "value": found["Value"],
        "type": found["Type"],
        "arn": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter{args['name']}",
    }
