"""Cost allocation tags: platform and team."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from infra.domain import naming

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, elements, mapping, show
from .resource_types import AWS_PROVIDER, LAUNCH_TEMPLATE, LUSTRE, NODE_CLASS

_OF_TEMPLATES: Final = ("instance", "volume")
"""Resources that EC2 creates from a launch template, which default tags do not reach."""


def _missing(path: str, tags: Any, wanted: Sequence[str], remedy: str) -> Iterator[Violation]:
    absent = [] if tags is UNKNOWN else [key for key in wanted if key not in mapping(tags)]
    if absent:
        expected = f"at least the tags {', '.join(wanted)}"
        yield Violation(path, f"no {', '.join(absent)}", expected, remedy)


def _launch_template(props: Mapping[str, Any], wanted: Sequence[str]) -> Iterator[Violation]:
    given = props.get("tagSpecifications")
    if given is UNKNOWN or UNKNOWN in elements(given):
        return
    found = {dig(entry, "resourceType"): dig(entry, "tags") for entry in elements(given)}
    for kind in _OF_TEMPLATES:
        remedy = "add them: the provider's default tags do not reach the template's instances and volumes"
        yield from _missing(f"tagSpecifications[{kind}].tags", found.get(kind), wanted, remedy)


def _decoded(value: Any) -> Any:
    """Decode JSON text, as which providers receive nested inputs."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def _provider(props: Mapping[str, Any], wanted: Sequence[str]) -> Iterator[Violation]:
    tags = dig(_decoded(props.get("defaultTags")), "tags")
    yield from _missing("defaultTags.tags", tags, wanted, "add them: every resource inherits them")
    accounts = _decoded(props.get("allowedAccountIds"))
    if accounts is not UNKNOWN and not elements(accounts):
        remedy = "set it: otherwise the stack can be created in another account"
        yield Violation("allowedAccountIds", show(accounts), "the account of the stack", remedy)


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    props, wanted = resource.props, config["tags"]
    if resource.type == LAUNCH_TEMPLATE:
        yield from _launch_template(props, wanted)
    elif resource.type == NODE_CLASS:
        remedy = "add them: Karpenter's nodes get no other tags"
        yield from _missing("spec.tags", dig(props, "spec", "tags"), wanted, remedy)
    elif resource.type == AWS_PROVIDER:
        yield from _provider(props, wanted)
    elif resource.type == LUSTRE:
        remedy = "add it: the cost of the file system is then allocated to the team"
        yield from _missing("tags", props.get("tags"), [naming.TEAM], remedy)


AWS_TAGS: Final = ResourceRule(
    name="aws-tags",
    description="AWS resources have the platform's tags, including those that default tags do not reach.",
    check=_check,
    schema={
        "tags": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "default": [
                *(naming.PART_OF, naming.MANAGED_BY),
                *(f"{naming.DOMAIN}/{name}" for name in ("stack", "cluster")),
            ],
            "description": "Tag keys required on every resource",
        },
    },
)
