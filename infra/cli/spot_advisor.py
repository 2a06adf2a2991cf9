"""The data file of AWS' Spot Instance Advisor: how often spot instances of each type are interrupted."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pydantic
import urllib3

from infra.domain.catalog.interruptions import Band

URL: Final = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
"""What the console's Spot Instance Advisor reads; public, without credentials."""
_TIMEOUT_S: Final = 30.0
"""Seconds to connect, and without a byte."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""It had 0.9 MB in 2025."""
_LOOPBACK: Final = "127.0.0.1"


class AdvisorError(Exception):
    """The data cannot be read or is not the advisor's; says why, in one line."""


class _Range(pydantic.BaseModel):
    index: int
    label: Band


class _Type(pydantic.BaseModel):
    r: int


class _System(pydantic.BaseModel):
    linux: dict[str, _Type] = pydantic.Field(alias="Linux")


class _Data(pydantic.BaseModel):
    ranges: list[_Range]
    spot_advisor: dict[str, _System]


def read(source: str) -> bytes:
    """Return the data of a URL or file. Raises AdvisorError."""
    try:
        if "://" not in source:
            with Path(source).open("rb") as file:
                return _bounded([file.read(MOST_BYTES + 1)])
        at = urlsplit(source)
        if at.scheme != "https" and at.hostname != _LOOPBACK:
            raise AdvisorError("it is not an https URL; requires https or a file")
        with urllib3.PoolManager() as pool:
            answer = pool.request(
                "GET", source, timeout=_TIMEOUT_S, retries=False, preload_content=False
            )
            if answer.status != HTTPStatus.OK:
                raise AdvisorError(f"HTTP {answer.status}")
            return _bounded(answer.stream())
    except OSError as error:
        raise AdvisorError(f"not readable: {error.strerror}") from None
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise AdvisorError(reason) from None


def _bounded(chunks: Iterable[bytes]) -> bytes:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > MOST_BYTES:
            raise AdvisorError(f"it has over {MOST_BYTES} bytes")
    return bytes(found)


def bands(data: bytes, regions: Iterable[str]) -> dict[str, dict[str, Band]]:
    """Return the bands of Linux instances by region and type. Raises AdvisorError if it lacks a region."""
    try:
        found = _Data.model_validate_json(data)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        said = f"{path}: {first['msg']}" if path else first["msg"]
        raise AdvisorError(f"it does not have the advisor's format: {said}") from None
    labels = {one.index: one.label for one in found.ranges}
    result: dict[str, dict[str, Band]] = {}
    for region in regions:
        if region not in found.spot_advisor:
            raise AdvisorError(f"it does not list the region {region}")
        result[region] = {}
        for name, one in found.spot_advisor[region].linux.items():
            if one.r not in labels:
                raise AdvisorError(
                    f"it has no range {one.r}, which it names for {name} in {region}"
                )
            result[region][name] = labels[one.r]
    return result
