"""Interruption queue: AWS's notices before a reclaim, which EventBridge sends to Karpenter.

Managed node groups do not need it: EKS watches them itself (infra/sites/aws/node_pools.py). On a spot notice, a
reservation's end or scheduled maintenance Karpenter taints and drains the node and starts another; it only
records a rebalance recommendation, which does not always precede a reclaim. Either way the drain evicts the
pods: the trainer gets SIGTERM, saves within its grace budget and exits with 75, and Kueue queues the gang again.
The trainer needs no sidecar for that (docs/adr/03-aws-foundation.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws.cloudwatch as cloudwatch
import pulumi_aws.sqs as sqs

from infra.domain import naming
from infra.sites.aws.policy_documents import document

RETENTION_S: Final = 300
"""Retention of messages. Older notices concern nodes that no longer exist."""

_ENDING: Final = ("stopping", "stopped", "shutting-down", "terminated")

PATTERNS: Final[Mapping[str, Mapping[str, Any]]] = {
    "spot-interruption": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Spot Instance Interruption Warning"],
    },
    "rebalance": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance Rebalance Recommendation"],
    },
    "state-change": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": list(_ENDING)},
    },
    "scheduled-change": {
        "source": ["aws.health"],
        "detail-type": ["AWS Health Event"],
        "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    },
    "reservation-end": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Capacity Reservation Instance Interruption Warning"],
    },
}
"""Event patterns that Karpenter acts on, by rule name."""


def queue_policy(queue_arn: str, rule_arns: Sequence[str]) -> dict[str, Any]:
    """Return the policy: only EventBridge may send, only for these rules, over TLS."""
    return document(
        {
            "Sid": "EventsOfTheRules",
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue_arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": list(rule_arns)}},
        },
        {
            "Sid": "OverTlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": queue_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    )


class InterruptionQueue(pulumi.ComponentResource):
    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsInterruptionQueue"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        queue = sqs.Queue(
            f"{name}-queue",
            message_retention_seconds=RETENTION_S,
            # SQS-managed key: EventBridge cannot use a KMS key without a statement in its policy.
            sqs_managed_sse_enabled=True,
            opts=own,
        )
        rules = {
            event: cloudwatch.EventRule(
                f"{name}-{event}", event_pattern=json.dumps(pattern), opts=own
            )
            for event, pattern in PATTERNS.items()
        }
        policy = sqs.QueuePolicy(
            f"{name}-policy",
            queue_url=queue.url,
            policy=pulumi.Output.all(queue.arn, *(rule.arn for rule in rules.values())).apply(
                lambda arns: json.dumps(queue_policy(arns[0], arns[1:]))
            ),
            opts=own,
        )
        for event, rule in rules.items():
            cloudwatch.EventTarget(
                f"{name}-{event}-target",
                rule=rule.name,
                arn=queue.arn,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
            )
        self.name = queue.name
        self.arn = queue.arn
        self.register_outputs({"name": queue.name, "arn": queue.arn})
