"""`python -m infra.cli.addon_settings STACK`: check versions and settings of EKS add-ons with EKS.

EKS refuses a version that it does not offer, and unknown settings, only while it installs an add-on, in the middle
of an update. So EKS is asked before, with the rights of a preview, of which this needs `eks:DescribeAddonVersions`
and `eks:DescribeAddonConfiguration`. Without credentials nothing is checked.

`--refresh`: write the versions that EKS recommends into infra/sites/aws/addon_versions.yaml, for every version of
Kubernetes, and print what changed.

Exit code 0; 1 with one line per version or setting that EKS would refuse, or where a refresh gets no answer; 2 for
a wrong command line. What EKS does not answer in a check is a warning.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import boto3
import botocore.exceptions
import jsonschema

from infra.cli.render import ROOT, Record, render
from infra.config import ConfigError, parse, stack_values
from infra.domain import catalog
from infra.sections.cluster import EksClusterConfig
from infra.sites.aws import addon_versions, node_health

ADDON: Final = "aws:eks/addon:Addon"
_AT_LEAST: Final = {node_health.NAME: node_health.FIRST_VERSION}
_SEMVER: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def inputs(records: Sequence[Record]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return version and settings of each rendered add-on by its name in EKS."""
    return {
        made["addonName"]: (
            made["addonVersion"],
            json.loads(made.get("configurationValues") or "{}"),
        )
        for made in (one["inputs"] for one in records if one["type"] == ADDON)
    }


def offered(client: Any, addon: str, kubernetes: str) -> tuple[list[str], str]:
    """Return the versions that EKS offers, newest first, and its default; "" where it names none."""
    pages = client.get_paginator("describe_addon_versions").paginate(
        addonName=addon, kubernetesVersion=kubernetes
    )
    found = [one for page in pages for info in page["addons"] for one in info["addonVersions"]]
    defaults = (
        one["addonVersion"]
        for one in found
        if any(fit.get("defaultVersion") for fit in one["compatibilities"])
    )
    return [one["addonVersion"] for one in found], next(defaults, "")


def semver(version: str) -> tuple[int, ...]:
    """Return the numbers of vMAJOR.MINOR.PATCH; empty for another form."""
    found = _SEMVER.match(version)
    return tuple(map(int, found.groups())) if found else ()


def recommended(client: Any, addon: str, kubernetes: str) -> str:
    """Return EKS' default, or the newest where the default is too old for the stack's settings.

    Raises ValueError where both are.
    """
    versions, default = offered(client, addon, kubernetes)
    least = _AT_LEAST.get(addon, ())
    for version in (default, *versions[:1]):
        if version and semver(version) >= least:
            return version
    raise ValueError(
        f"{addon}: EKS offers {versions[0] if versions else 'none'} for Kubernetes {kubernetes}; must be "
        f"v{'.'.join(map(str, least or (0, 0, 0)))} or newer; keep the pinned version, and try again later"
    )


def refreshed(client: Any, table: addon_versions.Versions) -> dict[str, dict[str, str]]:
    """Return the table with the versions that EKS recommends. Raises as `recommended`, and botocore's errors."""
    return {
        kubernetes: {addon: recommended(client, addon, kubernetes) for addon in versions}
        for kubernetes, versions in table.items()
    }


def errors(
    client: Any, kubernetes: str, wanted: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield one line per version or setting that EKS would refuse. Raises botocore's errors."""
    for addon, (version, values) in sorted(wanted.items()):
        versions, _ = offered(client, addon, kubernetes)
        if version not in versions:
            yield (
                f"{addon}: EKS does not offer {version} for Kubernetes {kubernetes}; must be one of "
                f"{', '.join(versions[:5]) or 'none'}; run python -m infra.cli.addon_settings --refresh"
            )
            continue
        if not values:
            continue
        answer = client.describe_addon_configuration(addonName=addon, addonVersion=version)
        schema = json.loads(answer["configurationSchema"])
        checker = jsonschema.validators.validator_for(schema)(schema)
        for found in sorted(checker.iter_errors(dict(values)), key=lambda one: one.json_path):
            yield (
                f"{addon} {found.json_path}: {found.message}; must suit the schema of {version}; "
                "change the setting in infra/sites/aws, or pin another version"
            )


def refresh() -> int:
    """Write the table of versions and return the exit code."""
    before = addon_versions.load()
    session = boto3.Session()
    client = session.client("eks", region_name=session.region_name or catalog.DEFAULT_REGION)
    try:
        after = refreshed(client, before)
    except (
        ValueError,
        botocore.exceptions.ClientError,
        botocore.exceptions.BotoCoreError,
    ) as error:
        print(f"error: {' '.join(str(error).split())}; nothing was changed", file=sys.stderr)
        return 1
    for kubernetes, versions in after.items():
        for addon, version in versions.items():
            if version != (old := before[kubernetes][addon]):
                print(f"{kubernetes} {addon}: {old} -> {version}")
    addon_versions.save(after)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.cli.addon_settings", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("stack", metavar="STACK", nargs="?")
    action.add_argument("--refresh", action="store_true", help="pin what EKS recommends")
    chosen = parser.parse_args(arguments)
    if chosen.refresh:
        return refresh()
    stack = chosen.stack
    file = ROOT / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        parser.error(f"STACK: got {stack!r}, which has no {file.name}")
    values = stack_values(file)
    try:
        config = parse(values)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    session = boto3.Session(region_name=config.aws.region if config.aws else None)
    if not isinstance(config.cluster, EksClusterConfig) or session.get_credentials() is None:
        return 0
    try:
        wanted = inputs(render(stack, values))
        found = list(errors(session.client("eks"), config.cluster.version, wanted))
    except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
        print(f"warning: EKS add-ons were not checked: {error}", file=sys.stderr)
        return 0
    for line in found:
        print(f"error: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
