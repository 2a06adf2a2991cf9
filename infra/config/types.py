"""Types of values in stack and run files, with the issue that an invalid value gets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra.config.errors import invalid
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
_PLAIN_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?[a-zA-Z]*")
_WIDEST_PUBLIC: Final = {4: 8, 6: 32}
"""By IP version: the shortest prefix that is still one organization's network."""


class StrictModel(BaseModel):
    """Base of every part of a file that people write."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    NEUTRAL: ClassVar[Mapping[str, Any]] = {}
    """Values by key that pass every check, for fields that are missing or invalid."""


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


def _public_cidr(value: str) -> str:
    block = ipaddress.ip_network(_cidr(value))
    if block.prefixlen < _WIDEST_PUBLIC[block.version]:
        raise invalid(
            "public-endpoint",
            f"must be /{_WIDEST_PUBLIC[4]} or smaller (IPv6: /{_WIDEST_PUBLIC[6]})",
            f"name the networks of your users, or set endpoint: {PRIVATE}",
            "is too wide",
        )
    if any(block.version == r.version and block.subnet_of(r) for r in _PRIVATE_RANGES):  # type: ignore[arg-type]
        raise invalid(
            "private-block",
            "must be public: the VPC reaches the API by its private endpoint",
            "name the public addresses of your users, or remove it",
            "is private",
        )
    return value


def _endpoint(value: Any) -> Any:
    if value == PRIVATE:
        return ()
    if isinstance(value, list) and value:
        return value
    raise invalid("wrong-type", f"must be {PRIVATE}, or a list of CIDR blocks that may reach it")


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
    """The repository of an image reference: what is before its tag and its digest."""
    name = image.partition("@")[0]
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def _log_days(value: int) -> int:
    if value not in _LOG_DAYS:
        raise invalid(
            "log-retention", f"must be one of {_LOG_DAYS_TEXT} (days)", "choose one of them"
        )
    return value


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


def _quoted_account(value: Any) -> Any:
    # YAML reads digits without quotes as a number, octal after a leading zero: do not echo it.
    if isinstance(value, int) and not isinstance(value, bool):
        raise invalid(
            "account-id",
            "must be 12 digits in quotes",
            "put it in quotes",
            "a number without quotes, octal if it starts with 0",
            show_value=False,
        )
    return value


def _bucket_prefix(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*[a-z0-9]", value) or len(value) > BUCKET_PREFIX_MAX:
        raise invalid(
            "bucket-prefix",
            "must be lower-case letters, digits and hyphens, starting and ending with a letter or "
            f"digit, 2 to {BUCKET_PREFIX_MAX}",
            "rename it",
        )
    if value.startswith(("xn--", "sthree-", "amzn-s3-demo-")):
        raise invalid(
            "bucket-prefix",
            "must not start with a prefix reserved by S3",
            "rename it",
            "is reserved",
        )
    return value


def _tag_key(value: str) -> str:
    if value.lower().startswith("aws:") or len(value) > 128:
        raise invalid(
            "tag", "must have at most 128 characters and not start with aws:", "rename it"
        )
    return _tag_text(value)


def _tag_text(value: str) -> str:
    if len(value) > _TAG_VALUE_MAX or not re.fullmatch(r"[\w .:/=+@-]+", value):
        raise invalid(
            "tag", f"must be letters, digits, spaces and any of _.:/=+-@, at most {_TAG_VALUE_MAX}"
        )
    return value


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
    Str, AfterValidator(matching("kubernetes-version", r"1\.[0-9]{1,3}", "a version such as 1.35"))
]
AccountId = Annotated[
    Str,
    AfterValidator(matching("account-id", r"[0-9]{12}", "12 digits in quotes")),
    BeforeValidator(_quoted_account),
]
RoleArn = Annotated[
    Str,
    AfterValidator(
        matching(
            "role-arn",
            r"arn:aws:iam::[0-9]{12}:role/([\w+=,.@-]+/)*[\w+=,.@-]{1,64}",
            "the ARN of a role such as arn:aws:iam::111122223333:role/platform-admin",
        )
    ),
]
VpcId = Annotated[
    Str, AfterValidator(matching("vpc-id", r"vpc-[0-9a-f]{8,17}", "an id such as vpc-0a1b2c3d"))
]
SubnetId = Annotated[
    Str,
    AfterValidator(
        matching("subnet-id", r"subnet-[0-9a-f]{8,17}", "an id such as subnet-0a1b2c3d")
    ),
]
ReservationId = Annotated[
    Str,
    AfterValidator(
        matching(
            "reservation-id",
            r"cr-[0-9a-f]{17}",
            "cr- and 17 hexadecimal digits",
            "copy it from the EC2 console",
        )
    ),
]
