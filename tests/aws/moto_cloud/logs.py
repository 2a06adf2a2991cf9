"""CloudWatch Logs."""

from __future__ import annotations

from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud, name_of, tag_map
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates

RETENTION_DAYS = (
    *(0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
"""0: for ever."""


@creates("aws:cloudwatch/logGroup:LogGroup")
def log_group(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = name_of(inputs)
    request = {}
    if "kmsKeyId" in inputs:
        cloud.key(inputs["kmsKeyId"])
        request["kmsKeyId"] = inputs["kmsKeyId"]
    cloud.client("logs").create_log_group(logGroupName=name, tags=tag_map(inputs), **request)
    # Moto takes any number of days.
    if (days := inputs.get("retentionInDays", 0)) not in RETENTION_DAYS:
        raise ValueError(f"CloudWatch keeps logs for none but {RETENTION_DAYS} days, not {days}")
    if days:
        cloud.client("logs").put_retention_policy(logGroupName=name, retentionInDays=days)
    return name, {"arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}", "name": name}
