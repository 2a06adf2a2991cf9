"""Instance metadata: a pod that reaches the metadata service has the node's role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, mapping, number, show
from .resource_types import LAUNCH_TEMPLATE, NODE_CLASS, NODE_GROUP

_PATHS: Final = {
    LAUNCH_TEMPLATE: ("metadataOptions",),
    NODE_CLASS: ("spec", "metadataOptions"),
    "aws:ec2/instance:Instance": ("metadataOptions",),
}


def _metadata_violations(path: str, options: Any, most: int) -> Iterator[Violation]:
    tokens, hops = dig(options, "httpTokens"), dig(options, "httpPutResponseHopLimit")
    if tokens not in ("required", UNKNOWN):
        yield Violation(
            path=f"{path}.httpTokens",
            got=show(tokens),
            allowed='"required"',
            remedy="set it: without a token a forged request inside a pod gets the node's keys",
        )
    known = number(hops)
    if hops is not UNKNOWN and (known is None or known > most):
        yield Violation(
            path=f"{path}.httpPutResponseHopLimit",
            got=show(hops if known is None else int(known)),
            allowed=f"at most {most}",
            remedy="lower it; pods, one hop further than the node, have Pod Identity",
        )


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    if resource.type == NODE_GROUP and not resource.props.get("launchTemplate"):
        yield Violation(
            path="launchTemplate",
            got="none",
            allowed="a launch template of the stack",
            remedy="name one: in the template of EKS, pods reach the metadata of their node",
        )
    keys = _PATHS.get(resource.type)
    if keys is None:
        return
    options = dig(resource.props, *keys)
    if mapping(options).get("httpEndpoint") != "disabled":
        yield from _metadata_violations(".".join(keys), options, config["maxHopLimit"])


INSTANCE_METADATA: Final = ResourceRule(
    name="instance-metadata",
    description="Nodes give metadata against a token only, and not to pods.",
    check=_check,
    schema={
        "maxHopLimit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2,
            "default": 1,
            "description": "Hops that the answer may go; 2 lets pods off the host network ask",
        }
    },
)
