"""Queues, and who may send to them."""

from __future__ import annotations

from tests.aws.moto_cloud.cloud import Cloud, document, name_of, tag_map
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates


@creates("aws:sqs/queue:Queue")
def queue(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = name_of(inputs)
    attributes = {}
    if "messageRetentionSeconds" in inputs:
        attributes["MessageRetentionPeriod"] = str(inputs["messageRetentionSeconds"])
    if inputs.get("sqsManagedSseEnabled"):
        attributes["SqsManagedSseEnabled"] = "true"
    if key := inputs.get("kmsMasterKeyId"):
        cloud.key(key)
        attributes["KmsMasterKeyId"] = key
    sqs = cloud.client("sqs")
    url = sqs.create_queue(QueueName=name, Attributes=attributes, tags=tag_map(inputs))["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return url, {"url": url, "arn": found["QueueArn"], "name": name}


@creates("aws:sqs/queuePolicy:QueuePolicy")
def queue_policy(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    document(inputs["policy"])
    cloud.client("sqs").set_queue_attributes(
        QueueUrl=inputs["queueUrl"], Attributes={"Policy": inputs["policy"]}
    )
    return inputs["queueUrl"], {}
