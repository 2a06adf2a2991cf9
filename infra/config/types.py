"""Kinds of values in files that people write, each with the line that a wrong one gets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra.domain import naming, quantity

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

_TAG_VALUE_MAX: Final = 256

_LOG_DAYS: Final = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827)
_LOG_DAYS_TEXT: Final = ", ".join(map(str, _LOG_DAYS))

PRIVATE: Final = "private"
"""In place of CIDR blocks: the Kubernetes API is reached from the VPC only."""

_PRIVATE_RANGES: Final = tuple(
    ipaddress.ip_network(block)
    for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
_WIDEST_PUBLIC: Final = {4: 8, 6: 32}
"""By IP version: a shorter prefix is not somebody's network any more, two of /1 are the internet."""


class StrictModel(BaseModel):
    """Base of every part of a file that people write."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


def _dns_label(value: str) -> str:
    if not naming.is_dns_label(value):
        raise ValueError(
            "lower-case letters, digits and hyphens, starting and ending with a letter or digit, "
            "at most 63; rename it"
        )
    return value


def _quantity(value: str) -> str:
    try:
        positive = quantity.parse(value) > 0
    except ValueError:
        positive = False
    if not positive:
        raise ValueError("a positive quantity such as 500m, 32 or 4Ti; correct it")
    return value


def _cores(value: str) -> str:
    if not _CORES[0] <= quantity.parse(_quantity(value)) <= _CORES[1]:
        raise ValueError("1m to 1000000 cores; correct it")
    return value


def _size(value: str) -> str:
    if not _BYTES[0] <= quantity.parse(_quantity(value)) <= _BYTES[1]:
        raise ValueError(
            "a size of 1Mi or more, below 8192Pi; correct its unit, of which m is a thousandth"
        )
    return value


def _cidr(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("a CIDR block such as 10.0.0.0/16; correct it") from None
    return value


def _public_cidr(value: str) -> str:
    block = ipaddress.ip_network(_cidr(value))
    if block.prefixlen < _WIDEST_PUBLIC[block.version]:
        raise ValueError(
            f"blocks of your own networks, /{_WIDEST_PUBLIC[4]} or smaller (IPv6: "
            f"/{_WIDEST_PUBLIC[6]}); name them, or set endpoint: {PRIVATE}"
        )
    if any(block.version == r.version and block.subnet_of(r) for r in _PRIVATE_RANGES):  # type: ignore[arg-type]
        raise ValueError(
            "public addresses, for the VPC reaches the API by its private endpoint anyway; "
            "name the public addresses that people come from, or remove it"
        )
    return value


def _endpoint(value: Any) -> Any:
    if value == PRIVATE:
        return ()
    if isinstance(value, list) and value:
        return value
    raise ValueError(f"{PRIVATE}, or a list of CIDR blocks that may reach it; correct it")


def _image(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        raise ValueError(
            "REPOSITORY@sha256:DIGEST (64 hexadecimal digits); "
            "a tag can be moved, so pin the digest that the registry shows"
        )
    return value


def _repository(value: str) -> str:
    if not _REPOSITORY.fullmatch(value):
        raise ValueError(
            "a registry or a repository in one, such as registry.example.com/training, "
            "without tag or digest; correct it"
        )
    return value


def repository_of(image: str) -> str:
    """The repository of an image reference: what is before its tag and its digest."""
    name = image.partition("@")[0]
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def _log_days(value: int) -> int:
    if value not in _LOG_DAYS:
        raise ValueError(f"a number of days that CloudWatch knows: {_LOG_DAYS_TEXT}; choose one")
    return value


def of_form(pattern: str, allowed: str, remedy: str) -> Callable[[str], str]:
    """A validator of text by its form. In a pattern letters and digits are those of ASCII."""
    form = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not form.fullmatch(value):
            raise ValueError(f"{allowed}; {remedy}")
        return value

    return check


def _bucket_prefix(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*[a-z0-9]", value) or len(value) > BUCKET_PREFIX_MAX:
        raise ValueError(
            "lower-case letters, digits and hyphens, starting and ending with a letter or digit, "
            f"2 to {BUCKET_PREFIX_MAX} of them; rename it"
        )
    if value.startswith(("xn--", "sthree-", "amzn-s3-demo-")):
        raise ValueError("a prefix that S3 does not keep for itself; rename it")
    return value


def _tag_key(value: str) -> str:
    if value.lower().startswith("aws:") or len(value) > 128:
        raise ValueError("tags of your own, not aws:..., at most 128 characters; rename it")
    return _tag_text(value)


def _tag_text(value: str) -> str:
    if len(value) > _TAG_VALUE_MAX or not re.fullmatch(r"[\w .:/=+@-]+", value):
        raise ValueError(
            f"letters, digits, spaces and any of _.:/=+-@, at most {_TAG_VALUE_MAX}; correct it"
        )
    return value


def _team_name(value: str) -> str:
    longest = naming.DNS_LABEL_MAX - len(naming.namespace(""))
    if len(_dns_label(value)) > longest:
        raise ValueError(
            f"at most {longest} characters, for its namespace is {naming.namespace('NAME')}; "
            "shorten it"
        )
    return value


def _label_key(value: str) -> str:
    if not naming.is_label_key(value):
        raise ValueError(
            "NAME or DOMAIN/NAME: letters, digits and any of -_. between them, a name of at most "
            f"{naming.DNS_LABEL_MAX}; rename it"
        )
    return value


def _label_value(value: str) -> str:
    if not naming.is_label_value(value):
        raise ValueError(
            "letters, digits and any of -_. between them, at most "
            f"{naming.DNS_LABEL_MAX}; correct it"
        )
    return value


def _taint_key(value: str) -> str:
    domain = _label_key(value).rpartition("/")[0]
    if value == naming.SPOT_TAINT or naming.is_reserved_domain(domain):
        raise ValueError(
            f"a key of your own: {naming.SPOT_TAINT} marks spot nodes, and domains of Kubernetes "
            "and its autoscalers are theirs; rename it"
        )
    return value


BUCKET_PREFIX_MAX: Final = 63 - len("-checkpoints")
"""S3's limit less the longest of the suffixes."""

Str = Annotated[str, Field(strict=True, min_length=1)]
Int = Annotated[int, Field(strict=True)]
Bool = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
DnsLabel = Annotated[Str, AfterValidator(_dns_label)]
TeamName = Annotated[Str, AfterValidator(_team_name)]
LabelKey = Annotated[Str, AfterValidator(_label_key)]
LabelValue = Annotated[Str, AfterValidator(_label_value)]
TaintKey = Annotated[Str, AfterValidator(_taint_key)]
Cores = Annotated[Str, AfterValidator(_cores)]
Size = Annotated[Str, AfterValidator(_size)]
Cidr = Annotated[Str, AfterValidator(_cidr)]
Image = Annotated[Str, AfterValidator(_image)]
Repository = Annotated[Str, AfterValidator(_repository)]
LogDays = Annotated[Int, AfterValidator(_log_days)]
Endpoint = Annotated[
    tuple[Annotated[Str, AfterValidator(_public_cidr)], ...],
    BeforeValidator(_endpoint, json_schema_input_type=Literal["private"] | tuple[Str, ...]),
]
"""CIDR blocks that may reach the public endpoint; none where the file says `private`."""
BucketPrefix = Annotated[Str, AfterValidator(_bucket_prefix)]
TagKey = Annotated[Str, AfterValidator(_tag_key)]
TagValue = Annotated[Str, AfterValidator(_tag_text)]
KubernetesVersion = Annotated[
    Str, AfterValidator(of_form(r"1\.[0-9]{1,3}", "a version such as 1.35", "correct it"))
]
AccountId = Annotated[
    Str, AfterValidator(of_form(r"[0-9]{12}", "12 digits in quotes", "correct it"))
]
RoleArn = Annotated[
    Str,
    AfterValidator(
        of_form(
            r"arn:aws:iam::[0-9]{12}:role/([\w+=,.@-]+/)*[\w+=,.@-]{1,64}",
            "the ARN of a role, such as arn:aws:iam::111122223333:role/platform-admin",
            "correct it",
        )
    ),
]
VpcId = Annotated[
    Str, AfterValidator(of_form(r"vpc-[0-9a-f]{8,17}", "an id such as vpc-0a1b2c3d", "correct it"))
]
SubnetId = Annotated[
    Str,
    AfterValidator(
        of_form(r"subnet-[0-9a-f]{8,17}", "an id such as subnet-0a1b2c3d", "correct it")
    ),
]
ReservationId = Annotated[
    Str,
    AfterValidator(
        of_form(r"cr-[0-9a-f]{17}", "cr- and 17 hexadecimal digits", "copy it from EC2's console")
    ),
]
