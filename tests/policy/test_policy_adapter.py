"""Inputs that rules receive through pulumi_policy, in the pack's own environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from policies.rules.model import UNKNOWN, merge_inputs

POLICIES = Path(__file__).resolve().parents[2] / "policies"
PYTHON = POLICIES / ".venv" / "bin" / "python"

PROGRAM = """
import json

from adapter import policy
from pulumi_policy import (
    PolicyCustomTimeouts,
    PolicyResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    StackValidationArgs,
)
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy
from rules.model import ResourceRule, StackRule

seen = {}


def before(resource, config):
    seen["before"] = resource
    return []


def at_the_end(resources, config):
    seen["end"], seen["subnet"] = resources
    return []


def received(resource):
    return {
        "protected": resource.protected,
        "props": {key: getattr(value, "name", value) for key, value in resource.props.items()},
        "references": {key: sorted(urns) for key, urns in resource.references.items()},
    }


options = PolicyResourceOptions(True, [], None, [], PolicyCustomTimeouts(0, 0, 0), [])
inputs = unknown_checking_proxy({"spec": {"nodes": 8.0}, "size": 2.5, "id": UNKNOWN_STRING_VALUE})
outputs = unknown_checking_proxy({"id": UNKNOWN_STRING_VALUE, "status": "new"})
subnet = PolicyResource("aws:s", {}, "urn:subnet", "s", options, None, None, [], {})
pool = PolicyResource(
    "k:p", outputs, "urn:pool", "p", options, None, None, [], {"id": [subnet]}
)

first = policy(ResourceRule(name="first", description="Test.", check=before))
first.validate(ResourceValidationArgs("k:p", inputs, "urn:pool", "p", options, None), print)
last = policy(StackRule(name="last", description="Test.", check=at_the_end))
last.validate(StackValidationArgs([pool, subnet]), print)
print(json.dumps({name: received(resource) for name, resource in seen.items()}))
"""


@pytest.fixture(scope="module")
def received() -> Any:
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM], cwd=POLICIES, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_resource_rules_receive_inputs_and_protection(received: Any) -> None:
    assert received["before"] == {
        "protected": True,
        "props": {"spec": {"nodes": 8}, "size": 2.5, "id": "VALUE"},
        "references": {},
    }


def test_stack_rules_receive_inputs_for_unknown_outputs(received: Any) -> None:
    assert received["end"] == {
        "protected": True,
        "props": {"spec": {"nodes": 8}, "size": 2.5, "id": "VALUE", "status": "new"},
        "references": {"id": ["urn:subnet"]},
    }
    assert received["subnet"]["props"] == {}


@pytest.mark.parametrize(
    ("outputs", "inputs", "together"),
    [
        ({}, {"spec": 1}, {"spec": 1}),
        ({"spec": UNKNOWN}, {"spec": 1}, {"spec": 1}),
        ({"spec": 2}, {"spec": 1}, {"spec": 2}),
        ({"id": UNKNOWN}, {}, {"id": UNKNOWN}),
    ],
)
def test_known_outputs_take_precedence_over_inputs(
    outputs: dict[str, Any], inputs: dict[str, Any], together: dict[str, Any]
) -> None:
    assert merge_inputs(outputs, inputs) == together
