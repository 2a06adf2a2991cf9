"""What policies allow on a KMS key."""

from __future__ import annotations

from typing import Final

USE: Final = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncrypt*",
    "kms:GenerateDataKey*",
    "kms:DescribeKey",
)
"""To whoever reads and writes what the key encrypts."""
