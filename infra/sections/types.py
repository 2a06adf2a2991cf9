"""Types of values in stack and run files, with the issue that an invalid value gets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra.domain import naming, quantity
from infra.sections.errors import invalid

SOURCE_SUFFIX: Final = "@source"
"""An image reference that ends so stands for the trainer's source in this checkout."""

_PART: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REPOSITORY: Final = rf"{_PART}(?::[0-9]+)?(?:/{_PART})*"
"""Form of a registry or a repository in one: https://github.com/distribution/reference."""

_TAG: Final = r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
_REFERENCE: Final = re.compile(rf"{REPOSITORY}{_TAG}(?:@sha256:[0-9a-f]{{64}}|{SOURCE_SUFFIX})")
_REPOSITORY: Final = re.compile(REPOSITORY)

_CORES: Final = (Decimal("0.001"), Decimal(1_000_000))
_BYTES: Final = (Decimal(quantity.MIB), Decimal(2**63 - 1))
"""Kubernetes counts bytes in 64 bits; less than a MiB is an `m` (a thousandth) that was to be an `M`."""

_PLAIN_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?[a-zA-Z]*")


class StrictModel(BaseModel):
    """Base of all models of stack and run files."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @classmethod
    def read(cls, values: Any) -> Self:
        """Return the model of a file's values, whose keys are in camel case only. Raises ValidationError."""
        return cls.model_validate(values, by_alias=True, by_name=False)


def _dns_label(value: str) -> str:
    if not naming.is_dns_label(value):
        raise invalid(
            "dns-label",
            "must be lower-case letters, digits and hyphens, starting and ending with a letter or "
            "digit, at most 63",
            "rename it",
        )
    return value


def _quantity(value: str) -> str:
    try:
        # Kubernetes also reads 1e3 and +5; stack files have one notation.
        valid = bool(_PLAIN_QUANTITY.fullmatch(value)) and quantity.parse(value) > 0
    except ValueError:
        valid = False
    if not valid:
        raise invalid("quantity", "must be a positive quantity such as 500m, 32 or 4Ti")
    return value


def _cores(value: str) -> str:
    if not _CORES[0] <= quantity.parse(_quantity(value)) <= _CORES[1]:
        raise invalid("out-of-range", "must be between 1m and 1000000 cores")
    return value


def _size(value: str) -> str:
    if not _BYTES[0] <= quantity.parse(_quantity(value)) <= _BYTES[1]:
        raise invalid(
            "out-of-range",
            "must be between 1Mi and 8192Pi (m means milli, not mega)",
            "correct its unit",
        )
    return value


def _cidr(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise invalid("cidr", "must be a CIDR block such as 10.0.0.0/16") from None
    return value


def _image(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        raise invalid(
            "image-reference",
            "must be REPOSITORY@sha256:DIGEST (64 hexadecimal digits)",
            "pin the digest that the registry shows; a tag can be moved",
        )
    return value


def is_repository(value: str) -> bool:
    """Return whether a text has the form of a registry or of a repository in one."""
    return _REPOSITORY.fullmatch(value) is not None


def _repository(value: str) -> str:
    if not is_repository(value):
        raise invalid(
            "registry",
            "must be a registry or a repository such as registry.example.com/training, without tag "
            "or digest",
        )
    return value


def repository_of(image: str) -> str:
    """Return the repository of an image reference, without tag and digest."""
    name = image.partition("@")[0]
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def matching(
    code: str, pattern: str, valid: str, action: str = "correct it"
) -> Callable[[str], str]:
    """Return a validator of text by a pattern, in which letters and digits are those of ASCII."""
    form = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not form.fullmatch(value):
            raise invalid(code, f"must be {valid}", action)
        return value

    return check


def _team_name(value: str) -> str:
    longest = naming.DNS_LABEL_MAX - len(naming.namespace(""))
    if len(_dns_label(value)) > longest:
        raise invalid(
            "name-too-long",
            f"must have at most {longest} characters: its namespace is {naming.namespace('NAME')}",
            "shorten it",
            "is too long",
        )
    return value


def _label_key(value: str) -> str:
    if not naming.is_label_key(value):
        raise invalid(
            "label-key",
            "must be NAME or DOMAIN/NAME: letters, digits and any of -_. between them, the name at "
            f"most {naming.DNS_LABEL_MAX}",
            "rename it",
        )
    return value


def _label_value(value: str) -> str:
    if not naming.is_label_value(value):
        raise invalid(
            "label-value",
            f"must be letters, digits and any of -_. between them, at most {naming.DNS_LABEL_MAX}",
        )
    return value


def _taint_key(value: str) -> str:
    domain = _label_key(value).rpartition("/")[0]
    if value == naming.SPOT_TAINT or naming.is_reserved_domain(domain):
        raise invalid(
            "taint-key",
            f"must not be {naming.SPOT_TAINT} (marks spot nodes) or of a domain of Kubernetes or its "
            "autoscalers",
            "rename it",
            "is reserved",
        )
    return value


def _instant(value: Any) -> datetime:
    try:
        if not isinstance(value, str) or not _INSTANT.fullmatch(value):
            raise ValueError
        return datetime.fromisoformat(value)
    except ValueError:
        raise invalid(
            "instant", "must be a time in UTC such as 2027-03-01T09:00:00Z, in quotes"
        ) from None


_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)

Str = Annotated[str, Field(strict=True, min_length=1)]
Int = Annotated[int, Field(strict=True)]
Bool = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
DnsLabel = Annotated[Str, AfterValidator(_dns_label)]
TeamName = Annotated[Str, AfterValidator(_team_name)]
LabelKey = Annotated[Str, AfterValidator(_label_key)]
LabelValue = Annotated[Str, AfterValidator(_label_value)]
TaintKey = Annotated[Str, AfterValidator(_taint_key)]
Instant = Annotated[datetime, BeforeValidator(_instant, json_schema_input_type=Str)]
Cores = Annotated[Str, AfterValidator(_cores)]
Size = Annotated[Str, AfterValidator(_size)]
Cidr = Annotated[Str, AfterValidator(_cidr)]
Image = Annotated[Str, AfterValidator(_image)]
Repository = Annotated[Str, AfterValidator(_repository)]
