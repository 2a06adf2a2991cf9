"""The program itself, for tests that run all of a stack."""

from __future__ import annotations

import json
import runpy
from typing import Any, Final

import pulumi

from infra.cli.render import ROOT, engine_config
from infra.config import placeholders, stack_values
from tests.aws.moto_cloud import ACCOUNT

OWN: Final = {
    placeholders.ACCOUNT: ACCOUNT,
    placeholders.IMAGE_DIGEST: "5e" * 32,
    "203.0.113.0/24": "198.18.0.0/24",
    "cr-0123456789abcdef0": "cr-0fedcba9876543210",
    "training.acme.dev": "training.tests.dev",
    "github.com/acme/training": "github.com/tests/training",
    "acme-training": "tests-training",
}
"""What a user writes in place of each placeholder of the committed stack files."""


def whole(stack: str, **changes: Any) -> Any:
    """The program on a stack file, with the tests' values for its placeholders, and top-level keys replaced."""
    text = json.dumps(stack_values(ROOT / f"Pulumi.{stack}.yaml") | changes)
    for placeholder, own in OWN.items():
        text = text.replace(placeholder, own)
    values = json.loads(text)

    def program(_: pulumi.ResourceOptions) -> None:
        pulumi.runtime.set_all_config(engine_config(values))
        runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__")

    return program
