"""Whether a team's pods may use an S3 location."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, issue, one_of, shown
from training.spec import RunKeys
from trainyard.objects.location import BadLocation, Location, is_location

_CREDENTIALS: Final = "AWS_ACCESS_KEY_ID"
"""A secret with this variable has credentials of its own, whose permissions nobody here knows."""


def check_bucket(
    path: str, source: str, team: str, platform: Platform, *, write: bool = False
) -> Iterator[ConfigIssue]:
    """A stack with buckets of its own gives a team's pods its prefix of them, and no other bucket.

    `write`: the run writes there, which the bucket of datasets does not allow.
    """
    usable = platform.writable_buckets if write else platform.buckets
    try:
        found = Location.parse(source)
    except BadLocation:
        yield issue(
            "invalid-source",
            path,
            f"{shown(source)} is not an S3 location",
            "must be s3://BUCKET/PREFIX",
            "correct it",
        )
        return
    own = f"s3://{one_of(usable)}/{team}/..."
    if not platform.buckets:
        return
    if found.bucket not in platform.buckets:
        yield issue(
            "foreign-bucket",
            path,
            f"bucket {found.bucket} is not one of the stack",
            f"must be below {own}: pods of the team have no permission for other buckets",
            "use that prefix",
        )
    elif not found.prefix.startswith(f"{team}/"):
        yield issue(
            "foreign-prefix",
            path,
            f"{shown(source)} is outside the prefix of team {team}",
            f"must be below {own}: pods of the team have no permission for other prefixes",
            "use that prefix",
        )
    elif found.bucket not in usable:
        yield issue(
            "read-only-bucket",
            path,
            f"pods only read bucket {found.bucket}",
            f"must be below {own}",
            "use another bucket",
        )


def check_settings(
    run: RunKeys, settings: Mapping[str, Any], platform: Platform
) -> Iterator[ConfigIssue]:
    """Check the S3 locations in the trainer's settings, which may be invalid: its store and more datasets."""
    known = platform.teams[run.team].secrets
    if any(_CREDENTIALS in known.get(name, ()) for name in run.secrets):
        return
    checkpoint, data = settings.get("checkpoint"), settings.get("data")
    found = {"checkpoint.store": checkpoint.get("store") if isinstance(checkpoint, Mapping) else ""}
    sources = data.get("sources") if isinstance(data, Mapping) else ()
    for index, source in enumerate(sources if isinstance(sources, list | tuple) else ()):
        if isinstance(source, Mapping):
            found[f"data.sources[{index}].path"] = source.get("path")
    for name, place in found.items():
        if isinstance(place, str) and is_location(place):
            write = name == "checkpoint.store"
            yield from check_bucket(f"config: {name}", place, run.team, platform, write=write)
