"""CloudWatch Logs."""

from __future__ import annotations

from moto_cloud.cloud import ACCOUNT, REGION, Cloud, tag_map
from moto_cloud.registry import Inputs, Outputs, creates


@creates("aws:cloudwatch/logGroup:LogGroup")
def log_group(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = inputs.get("name", inputs["__name"])
    request = {}
    if "kmsKeyId" in inputs:
        cloud.key(inputs["kmsKeyId"])
        request["kmsKeyId"] = inputs["kmsKeyId"]
    cloud.client("logs").create_log_group(logGroupName=name, tags=tag_map(inputs), **request)
    if inputs.get("retentionInDays"):
        cloud.client("logs").put_retention_policy(
            logGroupName=name, retentionInDays=inputs["retentionInDays"]
        )
    return name, {"arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}", "name": name}
