"""The component package: schema, conversions, refusals, and that it deploys what the project deploys."""

from __future__ import annotations

import json
import logging
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pytest
import yaml

from components import Platform, Team, TrainingRun, facade, schema
from infra.cli.render import Record, render
from tests import committed
from training import run_files
from trainyard import contract

Json = dict[str, Any]

ROOT = committed.ROOT
FILES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "training/configs").glob("*.yaml")
}
QUOTA = {"cpu": "64", "memory": "1Ti", "gpus": 2}
IMAGE = "registry.test/trainer@sha256:" + "1" * 64


@pytest.fixture(autouse=True)
def no_reports_of_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused component is what the next ones fail with; asyncio reports each that nothing waits for."""
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)


POOL = {
    "name": "gpus",
    "capacity": "on-demand",
    "instanceTypes": ["g6.xlarge"],
    "zone": "a",
    "max": 2,
}


def platform(**more: Any) -> Json:
    """The fewest inputs of a Platform that runs can train on."""
    return {
        "cluster": {"name": "lab"},
        "nodePools": [POOL],
        "storage": {"storageClass": "shared", "checkpoints": "1Ti", "datasets": "1Ti"},
        "teams": [{"name": "research", "tier": "research", "quota": QUOTA}],
        "images": {"trainer": IMAGE},
        **more,
    }


def document(**more: Any) -> Json:
    hello: Json = yaml.safe_load((ROOT / "training/runs/hello.yaml").read_text())
    return hello | more


def deployed(values: Json, team: Json | None = None, run: Json | None = None) -> list[Record]:
    """Every resource of a program with one of each component."""

    def program() -> None:
        site = Platform("lab", values)
        made = Team("team", {"platform": site.record, "name": "research"} | (team or {}))
        TrainingRun(
            "run", {"team": made.record, "document": document(), "files": FILES} | (run or {})
        )

    return render("lab", {}, program)


def refusal(given: Mapping[str, Json]) -> list[str]:
    with pytest.raises(pulumi.RunError) as raised:
        deployed(given.get("values", platform()), given.get("team"), given.get("run"))
    return str(raised.value).splitlines()


def custom(records: list[Record]) -> list[Record]:
    """Resources that are neither components nor providers."""
    return [one for one in records if not one["type"].startswith(("trainyard:", "pulumi:"))]


def told_apart(record: Record) -> str:
    """Type and inputs of a resource; a run's record says who launched it, and when."""
    inputs = dict(record["inputs"])
    if contract.RUN_RECORD_FILE in inputs.get("data", {}):
        inputs["data"] = {**inputs["data"], contract.RUN_RECORD_FILE: ""}
    return json.dumps([record["type"], inputs], sort_keys=True).replace("lab-aws", "aws")


def test_every_property_has_a_description() -> None:
    package = schema.package()
    holders = [*package["resources"].values(), *package["types"].values()]
    bare = [
        name
        for holder in holders
        for part in ("inputProperties", "properties")
        for name, one in holder.get(part, {}).items()
        if not one.get("description")
    ]
    assert bare == []


def test_only_records_and_the_kubeconfig_may_be_outputs() -> None:
    found = schema.package()["resources"].values()
    free = {k for one in found for k, v in one["inputProperties"].items() if not v.get("plain")}
    assert free == set(facade.OUTPUTS)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from references(one)


def test_all_types_of_the_schema_are_there() -> None:
    package = schema.package()
    named = {one.rpartition("/")[2] for one in references(package) if one.startswith("#/types/")}
    assert named == set(package["types"])


def test_few_inputs_are_required() -> None:
    needed = {
        token.rpartition(":")[2]: one["requiredInputs"]
        for token, one in schema.package()["resources"].items()
    }
    assert needed == {
        "Platform": ["cluster", "nodePools", "storage", "teams"],
        "Team": ["name", "platform"],
        "TrainingRun": ["document", "team"],
    }


@pytest.mark.parametrize("stack", ["local", "dev"])
def test_the_components_deploy_what_the_project_deploys(stack: str) -> None:
    values = committed.values(stack)
    values["images"] = run_files.images(values["images"], ROOT)
    listed = values.pop("runs")

    def program() -> None:
        site = Platform("lab", values)
        for name in (team["name"] for team in values["teams"]):
            made = Team(f"team-{name}", {"platform": site.record, "name": name})
            if name == "research" and listed == ["hello"]:
                TrainingRun("run", {"team": made.record, "document": document(), "files": FILES})

    ours = Counter(map(told_apart, custom(render(stack, {}, program))))
    theirs = Counter(map(told_apart, custom(committed.rendered(stack))))
    assert [*(ours - theirs)] == [*(theirs - ours)] == []


def test_numbers_of_the_engine_are_whole_where_the_models_want_it() -> None:
    values = json.loads(json.dumps(platform()), parse_int=float)
    run = {"document": json.loads(json.dumps(document()), parse_int=float)}
    of_floats, of_integers = deployed(values, run=run), deployed(platform())
    assert [*map(told_apart, custom(of_floats))] == [*map(told_apart, custom(of_integers))]


def test_a_team_may_give_its_own_keys_again() -> None:
    given = {"members": {"leads": ["ml-leads"]}}
    (binding,) = [r for r in deployed(platform(), given) if r["name"] == "team-binding-lead"]
    assert "ml-leads" in [one["name"] for one in binding["inputs"]["subjects"]]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"values": platform(colour=1)},
            "colour: unknown input; must be one of",
        ),
        (
            {"values": platform(nodePools=[])},
            "nodePools: an empty list is too short; must have at least 1 entry; correct it",
        ),
        (
            {
                "values": platform(
                    nodePools=[POOL | {"nodes": "process", "min": 2}],
                    images={"trainer": "here/trainer@source"},
                )
            },
            "images.trainer: 'here/trainer@source' stands for the source of a checkout; must be",
        ),
        (
            {"values": {key: one for key, one in platform().items() if key != "teams"}},
            "teams: missing; must be a list of teams; add it",
        ),
        ({"team": {"name": "resarch"}}, "name: 'resarch' is not a team; must be one of research;"),
        ({"team": {"name": None}}, "name: missing; must be given; add it"),
        (
            {"team": {"platform": "x"}},
            "platform: is not a record; must be the output `record` of a",
        ),
        (
            {"team": {"caps": {"nodes": 0}}},
            "caps.nodes: 0 is too small; must be at least 1; correct",
        ),
        ({"run": {"team": "{}"}}, "team: it is not a Platform record;"),
        (
            {"run": {"document": document(nodes=0)}},
            "document.nodes: 0 is too small; must be at least",
        ),
        (
            {"run": {"files": {"../x": ""}}},
            "files.../x: leads elsewhere; must be a path below your",
        ),
        ({"run": {"files": {}}}, "document.config: 'hello' does not exist; must be one of none"),
    ],
)
def test_bad_inputs_are_refused_in_the_callers_words(given: Json, line: str) -> None:
    (only,) = refusal(given)
    assert only.startswith(line)


@pytest.mark.parametrize("path", ["nodePools[0].name", "cluster", "name", "document.nodes"])
def test_an_output_that_decides_what_exists_is_refused(path: str) -> None:
    def program() -> None:
        """Outputs need the program's event loop."""
        output = pulumi.Output.from_input("x")
        pools = [POOL | {"name": output}]
        if path == "nodePools[0].name":
            Platform("lab", platform(nodePools=pools))
        elif path == "cluster":
            Platform("lab", platform(cluster=output))
        elif path == "name":
            Team("team", {"platform": output, "name": output})
        else:
            TrainingRun("run", {"team": output, "document": document(nodes=output)})

    with pytest.raises(pulumi.RunError) as raised:
        render("lab", {}, program)
    assert str(raised.value).startswith(
        f"{path}: is an output of a resource; must be a plain value, because it decides which"
    )


def test_the_package_loads_neither_clouds_nor_frameworks() -> None:
    heavy = {"pulumi_aws", "pulumi_eks", "torch", "transformers", "boto3", "kubernetes"}
    code = (
        "import sys, components.__main__, components.facade as f; print(heavy & sys.modules.keys())"
    )
    code = code.replace("heavy", str(heavy))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_the_packages_requirements_have_the_projects_versions_and_no_cloud() -> None:
    pins = set((ROOT / "requirements.txt").read_text().replace(" \\", "").splitlines())
    own = (ROOT / "components/requirements.txt").read_text().splitlines()[1:]
    on_aws = (ROOT / "components/aws/requirements.txt").read_text().splitlines()[1:]
    assert {*own, *on_aws} <= pins
    assert [one.partition("==")[0] for one in on_aws] == ["pulumi-aws", "pulumi-eks"]
    assert not any("aws" in one or "eks" in one for one in own)


EXAMPLES = ROOT / "examples/components"


def test_the_examples_are_short() -> None:
    programs = [EXAMPLES / name for name in ("go/main.go", "typescript/index.ts")]
    programs += [EXAMPLES / "yaml/Pulumi.yaml", EXAMPLES / "python/__main__.py"]
    assert {p.name: n for p in programs if (n := len(p.read_text().splitlines())) > 25} == {}


def test_the_examples_in_python_and_yaml_deploy_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi.Config, "require", lambda *_: IMAGE)

    def in_python() -> None:
        runpy.run_path(str(EXAMPLES / "python"), run_name="__main__")

    def in_yaml() -> None:
        text = (EXAMPLES / "yaml/Pulumi.yaml").read_text().replace("${image}", IMAGE)
        made: dict[str, Any] = {}
        for name, one in yaml.safe_load(text)["resources"].items():
            inputs = {
                key: made[value[2:-8]].record if str(value).startswith("${") else value
                for key, value in one["properties"].items()
            }
            for path, file in inputs.get("files", {}).items():
                assert (EXAMPLES / "yaml" / file["fn::readFile"]).resolve() == ROOT / path
                inputs["files"] = {path: (ROOT / path).read_text()}
            component = facade.COMPONENTS[one["type"].replace(":", ":index:")]
            made[name] = component(name, inputs)

    python, in_file = render("lab", {}, in_python), render("lab", {}, in_yaml)
    assert [*map(told_apart, custom(python))] == [*map(told_apart, custom(in_file))] != []
