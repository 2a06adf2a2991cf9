"""`python -m infra.cli.addon_settings STACK`: check settings of EKS add-ons against EKS' own schemas.

EKS refuses unknown settings only while it installs an add-on, in the middle of an update. The schema depends on
the add-on's version, so EKS is asked for the one that the stack would get: with the rights of a preview, of which
it needs `eks:DescribeAddonVersions` and `eks:DescribeAddonConfiguration`. Without credentials nothing is checked.
Exit code 0; 1 with one line per setting that the schema refuses; 2 for a wrong command line. What EKS does not
answer is a warning.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import boto3
import botocore.exceptions
import jsonschema

from infra.cli.render import ROOT, Record, render
from infra.config import ConfigError, parse, stack_values
from infra.config.sections.cluster import EksClusterConfig
from infra.sites.aws import node_health
from infra.sites.aws.addons import choose_version

ADDON: Final = "aws:eks/addon:Addon"
_AT_LEAST: Final = {node_health.NAME: node_health.FIRST_VERSION}


def settings(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Return the settings of each rendered add-on that has any, by its name in EKS."""
    return {
        one["inputs"]["addonName"]: json.loads(one["inputs"]["configurationValues"])
        for one in records
        if one["type"] == ADDON and one["inputs"].get("configurationValues")
    }


def version(client: Any, addon: str, kubernetes: str) -> str:
    """Return the version that the stack would get: EKS' default, or the newest where that is too old.

    Raises ValueError where both are too old, or EKS offers none.
    """
    answer = client.describe_addon_versions(addonName=addon, kubernetesVersion=kubernetes)
    offered = [one for found in answer["addons"] for one in found["addonVersions"]]
    if not offered:
        raise ValueError(f"{addon}: EKS offers no version for Kubernetes {kubernetes}")
    default = next(
        (o for o in offered if any(c.get("defaultVersion") for c in o["compatibilities"])),
        offered[0],
    )
    versions = [default["addonVersion"], offered[0]["addonVersion"]]
    return choose_version(addon, _AT_LEAST.get(addon, (0, 0, 0)), versions)


def errors(client: Any, kubernetes: str, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line per setting that EKS would refuse. Raises botocore's errors where it does not answer."""
    for addon, values in sorted(wanted.items()):
        try:
            chosen = version(client, addon, kubernetes)
        except ValueError as error:
            yield str(error)
            continue
        answer = client.describe_addon_configuration(addonName=addon, addonVersion=chosen)
        schema = json.loads(answer["configurationSchema"])
        checker = jsonschema.validators.validator_for(schema)(schema)
        for found in sorted(checker.iter_errors(dict(values)), key=lambda one: one.json_path):
            yield (
                f"{addon} {found.json_path}: {found.message}; must suit the schema of {chosen}; "
                "change the setting in infra/sites/aws, or require another version"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.cli.addon_settings", description=__doc__)
    parser.add_argument("stack", metavar="STACK")
    stack = parser.parse_args(arguments).stack
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
        wanted = settings(render(stack, values))
        found = list(errors(session.client("eks"), config.cluster.version, wanted))
    except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
        print(f"warning: settings of EKS add-ons were not checked: {error}", file=sys.stderr)
        return 0
    for line in found:
        print(f"error: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
