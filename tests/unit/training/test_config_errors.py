"""Configuration issues have one form, wherever they are found: stack and run files, and the trainer."""

from __future__ import annotations

import dataclasses

import pytest

from infra.sections import errors
from trainer import config_errors

PARTS = {
    "path": "a[0].b\n",
    "problem": "is 3",
    "valid": "must be below 3",
    "action": "lower it",
    "code": "out-of-range",
}


def test_an_issue_has_the_same_parts_on_both_sides() -> None:
    ours, theirs = (
        [(one.name, one.type, one.default) for one in dataclasses.fields(kind)]
        for kind in (config_errors.ConfigIssue, errors.ConfigIssue)
    )
    assert ours == theirs


def test_an_issue_renders_the_same_line_on_both_sides() -> None:
    line = "a[0].b\\n: is 3; must be below 3; lower it"
    assert str(config_errors.ConfigIssue(**PARTS)) == str(errors.ConfigIssue(**PARTS)) == line


@pytest.mark.parametrize("module", [config_errors, errors])
def test_an_error_has_a_line_for_each_issue(module: object) -> None:
    issue = module.ConfigIssue(**PARTS)  # type: ignore[attr-defined]
    error = module.ConfigError([issue, "plain"])  # type: ignore[attr-defined]
    assert error.issues == (issue, "plain")
    assert error.lines == (str(issue), "plain") and str(error) == "\n".join(error.lines)
