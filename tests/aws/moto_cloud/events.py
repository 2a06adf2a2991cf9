"""EventBridge: rules, and the queues that they feed."""

from __future__ import annotations

import json

from tests.aws.moto_cloud.cloud import Cloud, name_of, tags_of
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates


@creates("aws:cloudwatch/eventRule:EventRule")
def rule(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = name_of(inputs)
    made = cloud.client("events").put_rule(
        Name=name,
        EventPattern=json.dumps(json.loads(inputs["eventPattern"])),
        State=inputs.get("state", "ENABLED"),
        Tags=tags_of(inputs),
    )
    return name, {"arn": made["RuleArn"], "name": name}


@creates("aws:cloudwatch/eventTarget:EventTarget")
def target(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    """The rule and the queue must exist, and the queue must have a policy: AWS asks nobody else."""
    events, sqs = cloud.client("events"), cloud.client("sqs")
    events.describe_rule(Name=inputs["rule"])
    queue = inputs["arn"].rpartition(":")[2]
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    if "Policy" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"]).get(
        "Attributes", {}
    ):
        raise PermissionError(f"queue {queue} has no policy that lets events in")
    id_ = inputs.get("targetId", inputs["__name"])
    failed = events.put_targets(Rule=inputs["rule"], Targets=[{"Id": id_, "Arn": inputs["arn"]}])
    if failed["FailedEntryCount"]:
        raise ValueError(f"target refused: {failed['FailedEntries']}")
    return f"{inputs['rule']}-{id_}", {"targetId": id_}
