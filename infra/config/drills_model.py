"""A team's restore drill in the stack file."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.config.errors import invalid
from infra.config.types import Bool, Int, Size, Str, StrictModel
from infra.domain import naming, quantity
from infra.domain.tier import TIERS
from infra.tenancy.restore_drill import RestoreDrill

TRAINER_IMAGE: Final = "trainer"
"""Name in `images` of the image that a drill runs in unless it says otherwise."""

_CRON_FIELDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_CRON_TERM: Final = re.compile(r"(\*|[0-9]+(-[0-9]+)?)(/0*[1-9][0-9]*)?")
_PLACE: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w.=-]+)*", re.ASCII)


def _schedule(value: str) -> str:
    fields = value.split()
    sound = len(fields) == len(_CRON_FIELDS) and all(
        _term(term, low, high)
        for text, (low, high) in zip(fields, _CRON_FIELDS, strict=True)
        for term in text.split(",")
    )
    if not sound:
        raise invalid(
            "cron-schedule",
            "must be minute, hour, day, month and weekday in numbers (0 is Sunday), such as 17 3 * * *",
        )
    return value


def _term(text: str, low: int, high: int) -> bool:
    if not _CRON_TERM.fullmatch(text):
        return False
    numbers = [int(n) for n in re.findall(r"\d+", text.partition("/")[0])]
    return all(low <= n <= high for n in numbers) and numbers == sorted(numbers)


def _place(value: str) -> str:
    if not _PLACE.fullmatch(value):
        raise invalid("s3-uri", "must be s3://BUCKET/PREFIX")
    return value


class RestoreDrillConfig(StrictModel):
    """What proves that the team's checkpoints can be restored."""

    enabled: Bool | None = None
    """Default: true for a production team that names an image, or whose stack has one called trainer."""
    schedule: Annotated[Str, AfterValidator(_schedule)] = "17 3 * * *"
    """When, as cron has it, in UTC."""
    image: Str = TRAINER_IMAGE
    """A name in `images`, or a reference by digest."""
    runs: Annotated[Int, Field(ge=1, le=1000)] = 3
    """Of the runs that saved last, so many."""
    largest: Size = "8Gi"
    """The largest checkpoint that is restored, which takes as much memory and scratch space. Of a larger
    one every byte is read and compared with what was recorded."""
    stores: tuple[Annotated[Str, AfterValidator(_place)], ...] = ()
    """Prefixes with a folder per run, of runs whose `checkpoint.store` is a bucket."""

    def wanted(self, tier: str, *, has_image: bool) -> bool:
        """Whether there is a drill. `has_image`: the stack's images have this one's."""
        if self.enabled is not None:
            return self.enabled
        return TIERS[tier].restore_drill_by_default and (has_image or self.image != TRAINER_IMAGE)

    def drill(self, image: str, cpu_pool: str | None) -> RestoreDrill:
        """The drill that the platform works with, in this image, on nodes of this pool."""
        return RestoreDrill(
            image=image,
            schedule=self.schedule,
            runs=self.runs,
            largest=quantity.bytes_(self.largest),
            stores=self.stores,
            node_selector={naming.POOL: cpu_pool} if cpu_pool else {},
        )
