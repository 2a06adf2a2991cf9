"""The section `operators` of the stack file: one key per add-on of `infra/addons/registry.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model
from pydantic.alias_generators import to_snake

from infra.addons.registry import ADD_ONS, OPERATORS
from infra.config.types import Bool, Image, StrictModel


class OperatorConfig(StrictModel):
    """A controller that the platform needs."""

    provided: Bool = Field(description="true when the cluster has it, false to install it")
    """Whether the cluster already has the add-on: true uses it, false installs it."""
    image: Image | None = None
    """Image by digest, for add-ons without a chart; required to install them."""


class _Operators(StrictModel):
    """Controllers by name; those that are omitted are absent."""

    def present(self) -> dict[str, OperatorConfig]:
        """Return the controllers that the stack file names, in the registry's order."""
        named = {name: getattr(self, to_snake(name)) for name in OPERATORS}
        return {name: chosen for name, chosen in named.items() if chosen is not None}


def _field(name: str) -> Any:
    return Field(default=None, json_schema_extra={"description": ADD_ONS[name].summary})


if TYPE_CHECKING:

    class OperatorsConfig(_Operators):
        """Controllers by name."""

else:
    OperatorsConfig = create_model(
        "OperatorsConfig",
        __base__=_Operators,
        **{to_snake(name): (OperatorConfig | None, _field(name)) for name in OPERATORS},
    )
