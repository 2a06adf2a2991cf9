"""Adapt the rules to pulumi_policy: convert its values to plain data and violations to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError
from rules.model import UNKNOWN, Resource, ResourceRule, Rule, StackRule, merge_inputs

_STACK = "pulumi:pulumi:Stack"
"""Every deployment has exactly one, so policy configuration errors are reported on it."""

_inputs: dict[str, dict[str, Any]] = {}
"""Inputs by URN, as validated before the resource is changed.

Stack policies receive outputs. In a preview, objects of a cluster that does not exist yet have none, so
without the inputs stack policies would check empty objects.
"""


def plain(value: Any) -> Any:
    """Return `value` without pulumi_policy's proxies: unknowns as UNKNOWN, whole numbers as int."""
    if isinstance(value, Mapping):
        return {key: _item(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_item(value, index) for index in range(len(value))]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _item(container: Any, key: Any) -> Any:
    """Convert one item. Reading an unknown value raises on its container."""
    try:
        return plain(container[key])
    except UnknownValueError:
        return UNKNOWN


def _resource(found: ResourceValidationArgs | PolicyResource) -> Resource:
    references, props = {}, plain(found.props)
    if isinstance(found, PolicyResource):
        references = found.property_dependencies
        props = merge_inputs(props, _inputs.get(found.urn, {}))
    else:
        _inputs[found.urn] = props
    return Resource(
        type=found.resource_type,
        props=props,
        urn=found.urn,
        protected=found.opts.protect,
        references={
            name: frozenset(r.urn for r in targets) for name, targets in references.items()
        },
    )


def policy(rule: Rule) -> Policy:
    """Convert a rule to a policy, mandatory unless the policy configuration overrides it."""
    schema = PolicyConfigSchema({name: dict(prop) for name, prop in rule.schema.items()})
    common: dict[str, Any] = {
        "name": rule.name,
        "description": rule.description,
        "enforcement_level": EnforcementLevel.MANDATORY,
        "config_schema": schema if rule.schema else None,
    }

    def settings(
        args: ResourceValidationArgs | StackValidationArgs, report: ReportViolation, *, first: bool
    ) -> dict[str, Any]:
        config = {**rule.defaults, **plain(args.get_config())}
        for mistake in rule.unknown_properties(config) if first else ():
            report(str(mistake), None)
        return config

    if isinstance(rule, ResourceRule):
        check = rule.check

        def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
            config = settings(args, report, first=args.resource_type == _STACK)
            for violation in check(_resource(args), config):
                report(str(violation), None)

        return ResourceValidationPolicy(validate=validate, **common)
    assert isinstance(rule, StackRule)
    check_stack = rule.check

    def validate_stack(args: StackValidationArgs, report: ReportViolation) -> None:
        config = settings(args, report, first=True)
        for violation in check_stack([_resource(found) for found in args.resources], config):
            report(str(violation), violation.urn or None)

    return StackValidationPolicy(validate=validate_stack, **common)
