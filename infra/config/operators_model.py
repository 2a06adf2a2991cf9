"""Controllers that the platform needs, in the stack file: one key per add-on of `infra/addons/registry.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, create_model
from pydantic.alias_generators import to_snake

from infra.addons.registry import OPERATORS
from infra.config.types import Bool, Image, StrictModel


class OperatorConfig(StrictModel):
    """A controller that the platform needs."""

    provided: Bool = Field(description="true when the cluster has it, false to install it")
    """Whether the cluster already has the add-on: true uses it, false installs it."""
    image: Image | None = None
    """Image by digest, for add-ons without a chart; required to install them."""


class _Operators(StrictModel):
    """Controllers by name; one that is not named is not there."""

    def present(self) -> dict[str, OperatorConfig]:
        """Those that the stack file names."""
        named = {name: getattr(self, to_snake(name)) for name in OPERATORS}
        return {name: chosen for name, chosen in named.items() if chosen is not None}


if TYPE_CHECKING:

    class OperatorsConfig(_Operators):
        """Controllers by name."""

else:
    OperatorsConfig = create_model(
        "OperatorsConfig",
        __base__=_Operators,
        **{to_snake(name): (OperatorConfig | None, None) for name in OPERATORS},
    )
