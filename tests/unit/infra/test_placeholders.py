"""An update refuses the placeholders of the committed stack files, all at once; a preview does not."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from infra.cli.render import ROOT, render
from infra.config import ConfigError, placeholders, stack_values
from training import plan


def _values(stack: str) -> dict[str, Any]:
    return stack_values(ROOT / f"Pulumi.{stack}.yaml")


def _refused(stack: str, values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        plan.make(values, stack, ROOT, preview=False)
    return [f"{one.path}: {one.code}" for one in refused.value.issues if not isinstance(one, str)]


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_an_update_lists_every_placeholder_and_a_preview_accepts_them(stack: str) -> None:
    values = _values(stack)
    found = _refused(stack, values)
    expected = {
        *(f"cluster.{key}[0]: placeholder" for key in ("admins", "viewers", "driftDetectors")),
        "aws.account: placeholder",
        "storage.buckets.prefix: placeholder",
        "images.trainer: placeholder",
        "registries[0]: placeholder",
    }
    dev = {
        "cluster.endpoint[0]: placeholder",
        "teams[0].members.researchers[0]: placeholder",
        "teams[0].members.leads[0]: placeholder",
    }
    prod = {
        "nodePools[1].reservation.id: placeholder",
        "observability.grafana.url: placeholder",
        "signatures.keyless.subject: placeholder",
        "steering.image: placeholder",
    }
    assert set(found) == expected | (prod if stack == "prod" else dev)
    assert plan.make(values, stack, ROOT, preview=True).config.on_aws


def test_the_program_refuses_them_before_the_first_resource(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    with pytest.raises(pulumi.RunError, match=r"aws\.account: .111122223333. is a placeholder"):
        render("dev", _values("dev"))


def test_a_preview_warns_of_every_placeholder(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    render("dev", _values("dev"))
    [warning] = said
    assert warning.startswith("`pulumi up` would refuse these values of the stack file;")
    for issue in placeholders.find_placeholders(_values("dev")):
        assert f"  {issue.path}: {issue.problem}\n" in warning + "\n"


def test_a_preview_of_the_local_stack_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    render("local", _values("local"))
    assert not [one for one in said if "pulumi up" in one]


def test_an_update_of_the_local_stack_has_no_placeholders() -> None:
    assert placeholders.find_placeholders(_values("local")) == []


def test_placeholders_are_reported_together_with_other_issues() -> None:
    values = _values("dev")
    values["cohort"] = "Not A Name"
    found = _refused("dev", values)
    assert "aws.account: placeholder" in found
    assert any(one.startswith("cohort: ") for one in found)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("registry.example.com/trainer", "domain"),
        ("https://hooks.example.org", "domain"),
        ("vpc-0123456789abcdef0", "id"),
        ("arn:aws:kms:us-east-1:999999999999:key/01234567-89ab-cdef-0123-456789abcdef", "id"),
        (111122223333, "account"),
        ("192.0.2.0/24", "address block"),
        ("198.51.100.17/32", "address block"),
        ("https://203.0.113.9:8443", "address block"),
    ],
)
def test_other_placeholders_of_the_pages_are_found_too(value: object, kind: str) -> None:
    [issue] = placeholders.find_placeholders({"aws": {"list": [value]}})
    assert issue.path == "aws.list[0]" and f"the {kind} of this stack" in issue.valid


@pytest.mark.parametrize(
    "value",
    [
        *("123456789012", "examples", "my-example.company.com", "cr-0a1b2c3d4e5f67890"),
        *("9111122223333", "192.0.20.0/24", "203.0.114.0/24", "10.192.0.2", "1203.0.113.9"),
    ],
)
def test_own_values_are_no_placeholders(value: str) -> None:
    assert placeholders.find_placeholders({"aws": {"key": value}}) == []


def test_an_issue_does_not_repeat_the_value_around_the_placeholder() -> None:
    [issue] = placeholders.find_placeholders({"token": "s3cret@example.com"})
    assert "s3cret" not in str(issue)
    assert str(issue) == (
        "token: 'example.com' is a placeholder; must be the domain of this stack before `pulumi up`; "
        "replace it; previews accept it"
    )
