"""Controllers that the platform needs: versions, images, GPU device plugins, mirror."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field, create_model
from pydantic.alias_generators import to_snake

from infra.addons.registry import ADD_ONS, OPERATORS
from infra.sections.errors import invalid
from infra.sections.types import REPOSITORY, Bool, Image, Str, StrictModel, matching


class OperatorConfig(StrictModel):
    """A controller that the platform needs."""

    provided: Bool = Field(description="true when the cluster has it, false to install it")
    """Whether the cluster already has it; false installs it."""
    image: Image | None = None
    """Image by digest; required to install an add-on without a chart."""


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


_MIRROR: Final = re.compile(REPOSITORY)


def _mirror(value: str) -> str:
    host = value.partition("/")[0]
    if not _MIRROR.fullmatch(value) or not ("." in host or ":" in host):
        raise invalid(
            "registry",
            "must be a registry, or a folder in one, such as registry.example.com/mirror, without a "
            "scheme",
        )
    return value


Mirror = Annotated[Str, AfterValidator(_mirror)]
"""Host and optional path that replaces every registry."""


class ChartConfig(StrictModel):
    """The chart of an add-on that the stack installs."""

    digest: (
        Annotated[
            Str,
            AfterValidator(
                matching(
                    "chart-digest",
                    r"sha256:[0-9a-f]{64}",
                    "sha256: and 64 hexadecimal digits",
                    "`python -m infra.cli.mirror FILE --digests` prints it",
                )
            ),
        ]
        | None
    ) = None
    """Digest of its archive (`python -m infra.cli.mirror FILE --digests`), which is pulled once into .charts.
    Default: each preview pulls the chart."""
    values: dict[Str, Any] = Field(default={}, json_schema_extra={"type": "object"})
    """Values, merged over the stack's as Helm merges them."""
