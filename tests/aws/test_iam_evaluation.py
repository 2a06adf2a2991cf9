"""The IAM policy evaluator of the other tests: follows IAM's rules, raises on unsupported ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.aws.iam_evaluation import Request, allowed, matches

READ = Request(action="s3:GetObject", resource="arn:aws:s3:::b/a/x", account="1")


def policy(effect: str, **more: Any) -> dict[str, Any]:
    return {"Statement": {"Effect": effect, "Action": "s3:Get*", "Resource": "*"} | more}


def open_to(principal: Any, effect: str = "Allow", **more: Any) -> dict[str, Any]:
    return policy(effect, Principal=principal, **more)


def test_access_is_denied_by_default() -> None:
    assert not allowed(READ, owner="1")
    assert not allowed(READ, identity=[policy("Allow", Action="s3:Put*")], owner="1")
    assert not allowed(READ, identity=[policy("Allow", Resource="arn:aws:s3:::c/*")], owner="1")
    assert allowed(READ, identity=[policy("Allow")], owner="1")


def test_not_action_names_every_other_action() -> None:
    def but(pattern: str) -> dict[str, Any]:
        return {"Statement": {"Effect": "Deny", "NotAction": pattern, "Resource": "*"}}

    assert allowed(READ, identity=[policy("Allow"), but("s3:get*")], owner="1")
    assert not allowed(READ, identity=[policy("Allow"), but("ec2:*")], owner="1")
    with pytest.raises(ValueError, match="either Action or NotAction"):
        allowed(READ, identity=[policy("Allow", NotAction="ec2:*")], owner="1")


def test_deny_wins_on_either_side() -> None:
    allow, deny = policy("Allow"), policy("Deny")
    assert not allowed(READ, identity=[allow, deny], owner="1")
    assert not allowed(READ, identity=[allow], resource=open_to("*", "Deny"), owner="1")


def test_same_account_needs_one_allow_and_cross_account_needs_both() -> None:
    assert allowed(READ, resource=open_to({"AWS": "arn:aws:iam::1:root"}), owner="1")
    assert not allowed(READ, identity=[policy("Allow")], owner="2")
    assert not allowed(READ, resource=open_to("*"), owner="2")
    assert allowed(READ, identity=[policy("Allow")], resource=open_to("*"), owner="2")


def test_service_principal_is_not_matched_as_an_account() -> None:
    service = Request(action="s3:GetObject", resource="x", account=None, service="x.amazonaws.com")
    assert allowed(service, resource=open_to({"Service": "x.amazonaws.com"}), owner="1")
    assert not allowed(service, resource=open_to({"Service": "y.amazonaws.com"}), owner="1")
    assert not allowed(service, resource=open_to({"AWS": "arn:aws:iam::1:root"}), owner="1")
    assert allowed(service, resource=open_to({"AWS": "*"}), owner="1")


@pytest.mark.parametrize(
    ("condition", "context", "applies"),
    [
        ({"StringEquals": {"k": ["a", "b"]}}, {"k": "b"}, True),
        ({"StringEquals": {"k": "a*"}}, {"k": "ab"}, False),
        ({"StringEquals": {"k": "a"}}, {}, False),
        ({"StringNotEquals": {"k": ["a", "b"]}}, {"k": "b"}, False),
        ({"StringNotEquals": {"k": "a"}}, {}, True),
        ({"StringLike": {"k": "a/*"}}, {"k": "a/"}, True),
        ({"StringLike": {"k": "a/*"}}, {"k": "a2/"}, False),
        ({"StringLike": {"k": "a/*"}}, {}, False),
        ({"Bool": {"k": "false"}}, {"k": "False"}, True),
        ({"Bool": {"k": "false"}}, {}, False),
        ({"BoolIfExists": {"k": "false"}}, {}, True),
        ({"Null": {"k": "true"}}, {}, True),
        ({"Null": {"k": "true"}}, {"k": "x"}, False),
        ({"ArnLike": {"k": "arn:aws:iam::1:role/a*"}}, {"k": "arn:aws:iam::1:role/ab"}, True),
        ({"ArnLike": {"k": "arn:*:role/a"}}, {"k": "arn:aws:iam::1:role/a"}, False),
        ({"StringEquals": {"k": "a"}, "Bool": {"m": "true"}}, {"k": "a"}, False),
    ],
)
def test_conditions_are_evaluated_like_in_iam(
    condition: dict[str, Any], context: dict[str, str], applies: bool
) -> None:
    request = Request(action="s3:GetObject", resource="x", account="1", context=context)
    found = allowed(request, identity=[policy("Allow", Condition=condition)], owner="1")
    assert found is applies


@pytest.mark.parametrize(
    "statement",
    [
        policy("Allow", Condition={"DateLessThan": {"aws:CurrentTime": "2030-01-01"}}),
        policy("Allow", Condition={"ForAllValues:StringLike": {"k": "a"}}),
        policy("Allow", Resource="arn:aws:s3:::b/${aws:PrincipalTag/team}/*"),
        policy("Allow", NotResource="arn:aws:s3:::b/*"),
        policy("allow"),
    ],
)
def test_unsupported_statements_raise(statement: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError):
        allowed(READ, identity=[statement], owner="1")


def test_brackets_and_dots_are_not_wildcards() -> None:
    assert matches("a.b[c]*", "a.b[c]/d")
    assert not matches("a.b", "axb")
