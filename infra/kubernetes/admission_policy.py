"""ValidatingAdmissionPolicies and their bindings, from rules in CEL.

They apply to every user in every namespace with a team label, and fail closed. The API server evaluates them
itself, without a webhook or controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, manifest

_API: Final = "admissionregistration.k8s.io/v1"

WRITES: Final = ("CREATE", "UPDATE")


@dataclass(frozen=True, kw_only=True)
class Rule:
    holds: str
    """A CEL expression; true admits."""
    message: str
    """One line: what is wrong; what is valid; what to do."""


OWNERS_UNCHANGED: Final = Rule(
    holds="dyn(object).metadata.?ownerReferences == dyn(oldObject).metadata.?ownerReferences"
    " && dyn(object).metadata.?finalizers == dyn(oldObject).metadata.?finalizers",
    message="this account may not change owners or finalizers",
)
"""For policies about what one account may update."""


def resources(
    group: str, *names: str, operations: Sequence[str] = WRITES, scope: str = "Namespaced"
) -> dict[str, Any]:
    """Return a resource rule: these resources of an API group, in any version."""
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": list(names),
        "scope": scope,
    }


def policy(
    name: str,
    *,
    matches: Sequence[Mapping[str, Any]],
    rules: Sequence[Rule] = (),
    variables: Mapping[str, str] | None = None,
    conditions: Mapping[str, str] | None = None,
    audited: Mapping[str, str] | None = None,
    params: tuple[str, str] | None = None,
) -> Manifest:
    """Return one policy.

    `conditions`: by name, CEL that must hold for the rules to apply. `audited`: by key, CEL of a text for the
    audit log. `params`: API version and kind of objects of the request's namespace: the rules must hold for each
    of them as `params`; without any the request is denied.
    """
    selector = {"matchExpressions": [{"key": naming.TEAM, "operator": "Exists"}]}
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": selector,
            "resourceRules": [dict(rule) for rule in matches],
        },
    }
    if params:
        spec["paramKind"] = {"apiVersion": params[0], "kind": params[1]}
    if conditions:
        spec["matchConditions"] = _named(conditions)
    if variables:
        spec["variables"] = _named(variables)
    if rules:
        spec["validations"] = [
            {"expression": rule.holds, "message": rule.message, "reason": "Forbidden"}
            for rule in rules
        ]
    if audited:
        spec["auditAnnotations"] = [
            {"key": key, "valueExpression": text} for key, text in audited.items()
        ]
    return manifest(f"{_API}/ValidatingAdmissionPolicy", _name(name), "admission", spec=spec)


def binding(of: Mapping[str, Any]) -> Manifest:
    """Return the binding, without which a policy has no effect."""
    name = of["metadata"]["name"]
    every: dict[str, Any] = {"selector": {}, "parameterNotFoundAction": "Deny"}
    params = {"paramRef": every} if "paramKind" in of.get("spec", {}) else {}
    return manifest(
        f"{_API}/ValidatingAdmissionPolicyBinding",
        name,
        "admission",
        spec={"policyName": name, "validationActions": ["Deny", "Audit"], **params},
    )


def _name(name: str) -> str:
    """Return a cluster-wide name, with the project's prefix."""
    return f"{naming.PROJECT}-{name}"


def _named(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def text(value: str) -> str:
    """Return a CEL string."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def texts(values: Sequence[str]) -> str:
    """Return a CEL list of strings."""
    return f"[{', '.join(text(value) for value in values)}]"


def owners_of(of: str) -> str:
    return f"{of}.metadata.?ownerReferences.orValue([])"


def finalizers_of(of: str) -> str:
    return f"{of}.metadata.?finalizers.orValue([])"


def labels_of(of: str) -> str:
    return f"{of}.metadata.?labels.orValue({{}})"


def annotations_of(of: str) -> str:
    return f"{of}.metadata.?annotations.orValue({{}})"


def unchanged(new: str, old: str, *domains: str) -> str:
    """Return CEL that compares two maps of labels or annotations in the keys of these domains."""
    ours = " || ".join(f"k.startsWith('{domain}/')" for domain in domains)
    return (
        f"{new}.all(k, !({ours}) || (k in {old} && {old}[k] == {new}[k])) && "
        f"{old}.all(k, !({ours}) || k in {new})"
    )


def unchanged_but(where: str, but: Sequence[str]) -> str:
    """Return CEL: a map of the object, such as `spec`, is that of the old one, except for some keys."""
    left_out = " || ".join(f"k == {text(key)}" for key in but) or "false"
    path = where.replace(".", ".?")
    new, old = (f"dyn({side}).?{path}.orValue({{}})" for side in ("object", "oldObject"))
    return (
        f"({new}).all(k, {left_out} || (k in ({old}) && ({new})[k] == ({old})[k]))"
        f" && ({old}).all(k, {left_out} || k in ({new}))"
    )


ACTIVATION: Final = Rule(
    holds=unchanged_but("spec", ["active"]),
    message="this account may change spec.active of a Workload only",
)


def account_policy(
    name: str,
    match: Manifest,
    account: tuple[str, str],
    rules: Sequence[Rule],
    *,
    notes: Sequence[str],
    otherwise: str,
) -> Manifest:
    """Return what one program's account may update: by these rules, and of metadata the annotations `notes`.

    `account`: name of the condition, and CEL that is true for the account. `otherwise`: message on other metadata.
    """
    noted = (
        f"{unchanged_but('metadata.annotations', notes)} && {unchanged_but('metadata.labels', [])}"
    )
    return policy(
        name,
        matches=[match],
        conditions=dict([account]),
        rules=[*rules, Rule(holds=noted, message=otherwise), OWNERS_UNCHANGED],
    )


def only(namespace: str, account: str) -> str:
    """Return CEL: the request is of this service account."""
    return f"request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'"
