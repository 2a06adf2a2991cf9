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
from rules.catalog import unknown_properties
from rules.model import (
    UNKNOWN,
    Config,
    Resource,
    ResourceRule,
    Rule,
    StackRule,
    defaults,
    merge_inputs,
)

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


def _config(rule: Rule, given: Config) -> Config:
    return {**defaults(rule.schema), **plain(given)}


def _resource_policy(rule: ResourceRule) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        config = _config(rule, args.get_config())
        if args.resource_type == _STACK:
            for mistake in unknown_properties(rule, config):
                report(str(mistake), None)
        for violation in rule.check(_resource(args), config):
            report(str(violation), None)

    return ResourceValidationPolicy(
        name=rule.name,
        description=rule.description,
        validate=validate,
        enforcement_level=EnforcementLevel.MANDATORY,
        config_schema=_schema(rule),
    )


def _stack_policy(rule: StackRule) -> StackValidationPolicy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        config = _config(rule, args.get_config())
        for mistake in unknown_properties(rule, config):
            report(str(mistake), None)
        for violation in rule.check([_resource(found) for found in args.resources], config):
            report(str(violation), violation.urn or None)

    return StackValidationPolicy(
        name=rule.name,
        description=rule.description,
        validate=validate,
        enforcement_level=EnforcementLevel.MANDATORY,
        config_schema=_schema(rule),
    )


def _schema(rule: Rule) -> PolicyConfigSchema | None:
    if not rule.schema:
        return None
    return PolicyConfigSchema({name: dict(prop) for name, prop in rule.schema.items()})


def policy(rule: Rule) -> Policy:
    """Convert a rule to a policy, mandatory unless the policy configuration overrides it."""
    return _resource_policy(rule) if isinstance(rule, ResourceRule) else _stack_policy(rule)
