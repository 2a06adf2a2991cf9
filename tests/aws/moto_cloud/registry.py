"""Registry of functions by resource type and by look-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tests.aws.moto_cloud.cloud import Cloud

Inputs = dict[str, Any]
Outputs = dict[str, Any]
Creator = Callable[[Inputs, Cloud], tuple[str, Outputs]]
Answer = Callable[[Inputs, Cloud], Outputs]

CREATORS: dict[str, Creator] = {}
ANSWERS: dict[str, Answer] = {}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def creates(token: str) -> Callable[[_Function], _Function]:
    """Registers `function(inputs, cloud) -> (id, outputs)` for a type such as `aws:ec2/vpc:Vpc`.

    Inputs are camelCase as on the wire; `tagsAll` has the provider's default tags merged in. The
    inputs are part of the outputs already: return only what the provider adds.
    """

    def register(function: _Function) -> _Function:
        if token in CREATORS:
            raise ValueError(f"{token} is registered twice")
        CREATORS[token] = function
        return function

    return register


def answers(token: str) -> Callable[[_Function], _Function]:
    """Registers `function(args, cloud) -> result` for a look-up."""

    def register(function: _Function) -> _Function:
        if token in ANSWERS:
            raise ValueError(f"{token} is registered twice")
        ANSWERS[token] = function
        return function

    return register
