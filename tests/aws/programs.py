"""The program itself, for tests that run all of a stack."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pulumi

from infra.cli.render import ROOT, engine_config
from infra.config import stack_values
from tests.aws.moto_cloud import ACCOUNT


def whole(stack: str, **changes: Any) -> Any:
    """The program on a stack file, in the tests' own account, with top-level keys replaced."""
    text = json.dumps(stack_values(ROOT / f"Pulumi.{stack}.yaml") | changes)
    values = json.loads(text.replace("111122223333", ACCOUNT))

    def program(_: pulumi.ResourceOptions) -> None:
        pulumi.runtime.set_all_config(engine_config(values))
        runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__")

    return program
