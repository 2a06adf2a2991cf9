"""Platform, Team and TrainingRun: components that compose what this project's own program composes.

Inputs have the names and the meaning of the stack file and of the run file, in every language. What decides which
resources exist must be a plain value; only records and the kubeconfig may be outputs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pulumi
import pulumi_kubernetes as k8s
from pulumi.output import Unknown
from pydantic.alias_generators import to_snake

from components import schema
from components.schema import DEFAULTS, TEAM_KEYS, type_token
from infra.config import (
    StackConfig,
    add_ons,
    arguments,
    deployment,
    parse,
    placeholders,
    platform_record,
)
from infra.domain import published_record
from infra.domain.platform import Platform as PlatformRecord
from infra.domain.storage import TeamVolumes, Volume
from infra.sections.errors import ConfigError, ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.types import SOURCE_SUFFIX
from infra.tenancy.team import Team as TeamObjects
from training import image_capabilities, lineage, run_files, runs, scheduler_checks
from training.spec import RunSpec

Json = dict[str, Any]

OUTPUTS: Final = ("kubeconfig", "platform", "team")
"""Inputs that may be outputs of other resources."""


_PLATFORM: Final = "must be the output `record` of a Platform of this release"
_CORRECT: Final = "correct it"


refusal: Callable[[str], Exception] = pulumi.RunError
"""Makes the error for inputs that cannot be used, which is shown without a traceback; the plugin has another."""


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn issues into the refusal of a component."""
    try:
        yield
    except ConfigError as error:
        raise refusal(str(error)) from None


def _plain(args: Mapping[str, Any]) -> Json:
    """Return the inputs that decide which resources exist. Raises ConfigError where one is an output."""
    issues: list[ConfigIssue] = []

    def value(one: Any, path: str) -> Any:
        if isinstance(one, pulumi.Output | Unknown):
            valid = "must be a plain value, because it decides which resources exist"
            action = "write the value, or read it from your program's configuration"
            issues.append(issue("output", path, "is an output of a resource", valid, action))
        elif isinstance(one, Mapping):
            return {str(key): value(inner, f"{path}.{key}") for key, inner in one.items()}
        elif isinstance(one, list | tuple):
            return [value(inner, f"{path}[{index}]") for index, inner in enumerate(one)]
        elif isinstance(one, float) and one.is_integer():
            return int(one)  # The engine sends every number as a float.
        return one

    found = {
        key: value(one, key) for key, one in args.items() if key not in OUTPUTS and one is not None
    }
    if issues:
        raise ConfigError(issues)
    return found


def _check_keys(component: str, args: Mapping[str, Any], *required: str) -> None:
    """Raises ConfigError with inputs that the component does not have, and with those of `required` that miss."""
    known = schema.inputs(component)
    issues = [
        issue(
            "unknown-key",
            key,
            "unknown input",
            f"must be one of {one_of(known)}",
            did_you_mean(key, known, "remove it"),
        )
        for key in args.keys() - known
    ]
    missing = [key for key in required if args.get(key) is None]
    issues += [issue("missing", key, "missing", "must be given", "add it") for key in missing]
    if issues:
        raise ConfigError(issues)


def _registered(args: Mapping[str, Any]) -> Json:
    """Return the inputs for the state: kubeconfigs encrypted, without the texts of files."""
    found = {key: value for key, value in args.items() if value is not None and key != "files"}
    if "kubeconfig" in found:
        found["kubeconfig"] = pulumi.Output.secret(found["kubeconfig"])
    return found


class _Component(pulumi.ComponentResource):
    """A component with its outputs by name."""

    outputs: Json

    def publish(self, outputs: Json) -> None:
        self.outputs = outputs
        for key, value in outputs.items():
            setattr(self, to_snake(key), value)
        self.register_outputs(outputs)

    def reach(
        self, name: str, args: Mapping[str, Any], cluster: str, context: str | None
    ) -> k8s.Provider:
        """Return the provider of an existing cluster, known to Pulumi by its name, not by its address."""
        reached = k8s.ProviderArgs(
            kubeconfig=args.get("kubeconfig"),
            context=context,
            cluster_identifier=cluster,
            enable_server_side_apply=True,
        )
        return k8s.Provider(f"{name}-cluster", reached, pulumi.ResourceOptions(parent=self))


def _config(values: Json) -> StackConfig:
    """Return the checked configuration. Raises ConfigError; a preview accepts placeholders."""
    config = parse(values)
    unset = placeholders.find_placeholders(values)
    if unset and not pulumi.runtime.is_dry_run():
        raise ConfigError(unset)
    images = {f"images.{name}": image for name, image in config.images.items()}
    if config.elastic_runs:
        images["elasticRuns.image"] = config.elastic_runs.image
    what, valid = "stands for the source of a checkout", "must be REPOSITORY@sha256:DIGEST"
    action = "pin the digest that the registry shows"
    issues = [
        issue("image-source", path, f"{shown(image)} {what}", valid, action)
        for path, image in images.items()
        if image.endswith(SOURCE_SUFFIX)
    ]
    if issues:
        raise ConfigError(issues)
    return config


class Platform(_Component):
    """Node pools, operators, queues, observability and admission policies of a cluster."""

    record: pulumi.Output[str]
    """What teams take as `platform`."""
    kubeconfig: pulumi.Output[str]
    namespaces: Mapping[str, str]
    queues: Mapping[str, str]
    site: Mapping[str, Any]

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        with _refusals():
            _check_keys("Platform", args)
            values = {**DEFAULTS, **_plain(args)}
            if isinstance(values.get("cluster"), dict):
                values["cluster"] = {"provider": "existing", **values["cluster"]}
            config = _config(values)
            if unset := placeholders.find_placeholders(values):
                pulumi.log.warn(placeholders.warning(unset))
            add_ons.pull_charts(config, Path.cwd())
        super().__init__(type_token("Platform"), name, _registered(args), opts)
        owner, stack = deployment.Owner(parent=self, prefix=f"{name}-"), pulumi.get_stack()
        platform = platform_record.platform(config, stack)
        given = args.get("kubeconfig")
        site = deployment.provision_aws(config, stack, owner)
        site = site or deployment.attach_existing(config, owner, given)
        done = deployment.deploy_platform(config, platform, config.images, site, owner)
        queues = done.queues
        before = *done.before_teams, *queues.cluster_queues.values(), *queues.named_by_runs
        record = {
            "stack": stack,
            "values": values,
            "volumes": {
                team.name: _volumes_as_json(site.storage.volumes(team.name))
                for team in config.teams
            },
        }
        text = json.dumps(record, sort_keys=True)
        path, _ = arguments.kubeconfig(config)
        self.publish(
            {
                # What takes the record comes after all that teams need, and is destroyed before it.
                "record": pulumi.Output.all(*(one.urn for one in before)).apply(lambda _: text),
                "kubeconfig": pulumi.Output.secret(site.kubeconfig or given or path or ""),
                "namespaces": platform.export()["namespaces"],
                "queues": platform.export()["queues"],
                "site": dict(site.outputs),
            }
        )


def _volumes_as_json(volumes: TeamVolumes) -> Json:
    return {
        claim: {"size": one.size, "storage_class": one.storage_class, "name": one.name}
        for claim, one in (("checkpoints", volumes.checkpoints), ("datasets", volumes.datasets))
    }


@dataclass(frozen=True)
class _RecordedVolumes:
    """Shared storage as a Platform's record has it."""

    teams: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def volumes(self, team: str) -> TeamVolumes:
        return TeamVolumes(**{claim: Volume(**one) for claim, one in self.teams[team].items()})


class Team(_Component):
    """A team's namespace with quota, members, volumes, secrets and network policies."""

    record: pulumi.Output[str]
    """What runs take as `team`."""
    namespace: pulumi.Output[str]
    queue: pulumi.Output[str]

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        with _refusals():
            _check_keys("Team", args, "platform", "name")
            plain = _plain(args)
        super().__init__(type_token("Team"), name, _registered(args), opts)

        def deploy(record: str) -> Json:
            with _refusals():
                config, stack, storage = _read_platform(record, plain)
            on = self.reach(name, args, config.cluster.name, arguments.kubeconfig(config)[1])
            labels = image_capabilities.labels_of(config.images.values(), schema.ROOT)
            platform = replace(platform_record.platform(config, stack), image_labels=labels)
            wanted = arguments.teams(config, platform, config.images, {}, storage)[plain["name"]]
            inside = pulumi.ResourceOptions(parent=self, provider=on)
            made = TeamObjects(name, wanted, inside)
            within = pulumi.ResourceOptions(parent=made, depends_on=[made.ready])
            runs.deploy_runtime(name, plain["name"], platform, config.images, within)
            team = platform.teams[plain["name"]]
            return {
                "record": made.ready.urn.apply(lambda _: wanted.record),
                "namespace": team.namespace,
                "queue": team.local_queue,
            }

        done = pulumi.Output.from_input(args["platform"]).apply(deploy)
        self.publish({key: done[key] for key in ("record", "namespace", "queue")})


def _read_platform(record: str, given: Json) -> tuple[StackConfig, str, _RecordedVolumes]:
    """Return the Platform with a team's own keys, its stack and its volumes. Raises ConfigError."""
    try:
        found = json.loads(record)
        stack, values, volumes = str(found["stack"]), found["values"], found["volumes"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            [issue("record", "platform", "is not a record", _PLATFORM, _CORRECT)]
        ) from None
    names = [team["name"] for team in values["teams"]]
    if given["name"] not in names:
        valid, action = f"must be one of {one_of(names)}", "add the team to the Platform's teams"
        raise ConfigError(
            [issue("unknown-name", "name", f"{shown(given['name'])} is not a team", valid, action)]
        )
    index = names.index(given["name"])
    own = {key: given[key] for key in TEAM_KEYS if key in given}
    values["teams"][index] |= own
    try:
        return _config(values), stack, _RecordedVolumes(volumes)
    except ConfigError as error:
        here = f"teams[{index}]."
        lines = [str(one).removeprefix(here) for one in error.issues if str(one).startswith(here)]
        others = [f"platform: {one}" for one in error.issues if not str(one).startswith(here)]
        raise ConfigError([*lines, *others]) from None


class TrainingRun(_Component):
    """A version of a run, queued for the team's nodes."""

    run_id: pulumi.Output[str]
    namespace: pulumi.Output[str]
    api_version: pulumi.Output[str]
    kind: pulumi.Output[str]
    queue: pulumi.Output[str]
    checkpoint_uri: pulumi.Output[str]

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        with _refusals():
            _check_keys("TrainingRun", args, "team", "document")
            plain = _plain(args)
        super().__init__(type_token("TrainingRun"), name, _registered(args), opts)

        def deploy(record: str) -> Json:
            with _refusals():
                platform, run = _read_run(record, plain)
            on = self.reach(name, args, platform.cluster, plain.get("context"))
            commit, launch = plain.get("commit", "unknown"), lineage.launch(Path("/"))
            owner = deployment.Owner(parent=self, prefix=f"{name}-")
            made = runs.deploy([run], platform, {run.team: []}, on, commit, launch, owner)
            return dict(made[run.run_id].outputs)

        done = pulumi.Output.from_input(args["team"]).apply(deploy)
        keys = ("runId", "namespace", "apiVersion", "kind", "queue", "checkpointUri")
        self.publish({key: done[key] for key in keys})


def _read_run(record: str, given: Json) -> tuple[PlatformRecord, RunSpec]:
    """Return a run, resolved from its document and its files, and its platform. Raises ConfigError."""
    try:
        published = published_record.from_text(record)
    except published_record.RecordError as error:
        valid = "must be the output `record` of a Team of this release"
        raise ConfigError([issue("record", "team", str(error), valid, _CORRECT)]) from None
    platform, images = published.platform, published.images
    document = given["document"]
    if isinstance(document, dict):
        document = {"team": next(iter(platform.teams)), **document}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in given.get("files", {}).items():
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                valid = "must be a path below your program's folder"
                raise ConfigError(
                    [issue("path", f"files.{path}", "leads elsewhere", valid, _CORRECT)]
                )
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        run, found = run_files.resolve(document, platform, images, root)
    problems: list[ConfigIssue | str] = [
        *(
            replace(one, path=f"document.{one.path}")
            for one in found
            if isinstance(one, ConfigIssue)
        ),
        *(f"document: {one}" for one in found if isinstance(one, str)),
        *scheduler_checks.check_quota_of_all([("document", run)] if run else [], platform),
    ]
    if run is None or problems:
        raise ConfigError(problems)
    return platform, run


COMPONENTS: Final[Mapping[str, Callable[..., _Component]]] = {
    type_token(one.__name__): one for one in (Platform, Team, TrainingRun)
}
"""By the token of the package."""
