"""Whether a team's pods may read an S3 location."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.errors import ConfigIssue, one_of, shown
from infra.domain.platform import Platform
from training.objects.location import BadLocation, Location


def check_bucket(path: str, source: str, team: str, platform: Platform) -> Iterator[ConfigIssue]:
    """A stack with buckets of its own gives a team's pods its prefix of them, and no other bucket."""
    try:
        found = Location.parse(source)
    except BadLocation:
        yield ConfigIssue(
            path=path,
            code="invalid-source",
            problem=f"{shown(source)} is not an S3 location",
            valid="must be s3://BUCKET/PREFIX",
            action="correct it",
        )
        return
    own = f"s3://{one_of(platform.buckets)}/{team}/..."
    if not platform.buckets:
        return
    if found.bucket not in platform.buckets:
        yield ConfigIssue(
            path=path,
            code="foreign-bucket",
            problem=f"bucket {found.bucket} is not one of the stack",
            valid=f"must be below {own}: pods of the team have no permission for other buckets",
            action="copy the data there",
        )
    elif not found.prefix.startswith(f"{team}/"):
        yield ConfigIssue(
            path=path,
            code="foreign-prefix",
            problem=f"{shown(source)} is outside the prefix of team {team}",
            valid=f"must be below {own}: pods of the team have no permission for other prefixes",
            action="copy the data there",
        )
