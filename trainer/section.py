"""Base of the configuration's sections, and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_BITS: Final = 64
"""Of whole numbers in torch and in files, with their sign."""


def _number(value: Any) -> Any:
    """Return `1e-3`, which YAML 1.1 reads as text, as a number. Raises ValueError beyond 64 bits."""
    if isinstance(value, str) and "e" in value.lower():
        try:
            return float(value)
        except ValueError:
            return value
    if isinstance(value, int) and value.bit_length() >= _BITS:
        raise ValueError(f"must be a number of less than {_BITS} bits")
    return value


AS_NUMBER: Final = BeforeValidator(_number)
Count = Annotated[int, Field(strict=True, gt=0), AS_NUMBER]
CountOrZero = Annotated[int, Field(strict=True, ge=0), AS_NUMBER]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0), AS_NUMBER]
PositiveOrZero = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0), AS_NUMBER]
Share = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, lt=1), AS_NUMBER]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, and nothing changes after the file was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
