"""What policy-controller may read in the account: images' signatures, and the public half of a key."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def read_policy(account: str, region: str, kms_key_arn: str | None) -> Document:
    """Signatures lie beside their images in ECR; who is keyless needs no key."""
    statements: list[dict[str, Any]] = [
        {
            "Sid": "LogInToRegistry",
            "Effect": "Allow",
            "Action": ["ecr:GetAuthorizationToken"],
            "Resource": "*",
        },
        {
            "Sid": "ReadSignatures",
            "Effect": "Allow",
            "Action": [
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:DescribeImages",
                "ecr:GetDownloadUrlForLayer",
            ],
            "Resource": f"arn:aws:ecr:{region}:{account}:repository/*",
        },
    ]
    if kms_key_arn:
        statements.append(
            {
                "Sid": "ReadPublicKey",
                "Effect": "Allow",
                "Action": ["kms:DescribeKey", "kms:GetPublicKey"],
                "Resource": kms_key_arn,
            }
        )
    return {"Version": "2012-10-17", "Statement": statements}
