"""From an empty folder: a program with the components brings up platform, team and runs, which train."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.config import add_ons, parse, stack_values
from sandbox import charts, toolchain
from sandbox.paths import PROJECT
from sandbox.toolchain.tools import PULUMI_VERSION
from tests.sandbox import region_kit
from tests.sandbox.conftest import Cluster, started
from tests.sandbox.node_kit import until
from training import run_files

Json = dict[str, Any]

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(1800), pytest.mark.long(300)]

PLUGIN = {"name": "trainyard", "runtime": "python"}
"""Without the virtual environment of components/PulumiPlugin.yaml: that of the tests has what it would install."""
HELLO = "training/configs/hello.yaml"
PYTHON = """
import json, pulumi

class Made(pulumi.ComponentResource):
    def __init__(self, token, name, inputs):
        super().__init__(token, name, {"record": None, **inputs}, remote=True)

made = {}
for name, one in json.load(open("resources.json")).items():
    inputs = {key: made[value[2:-8]].record if str(value).startswith("${") else value
              for key, value in one["properties"].items()}
    made[name] = Made(one["type"].replace(":", ":index:"), name, inputs)
"""
GO = """package main

import (
	"encoding/json"
	"os"

	"example.com/pulumi-trainyard/sdk/go/trainyard"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func main() {
	text, err := os.ReadFile("resources.json")
	if err != nil {
		panic(err)
	}
	var given struct {
		Lab           struct{ Properties trainyard.PlatformArgs }
		First, Second struct{ Properties struct {
			Document trainyard.RunDocumentArgs
			Files    map[string]string
		} }
	}
	if err := json.Unmarshal(text, &given); err != nil {
		panic(err)
	}
	pulumi.Run(func(ctx *pulumi.Context) error {
		lab, err := trainyard.NewPlatform(ctx, "lab", &given.Lab.Properties)
		if err != nil {
			return err
		}
		team := &trainyard.TeamArgs{Name: "research", Platform: lab.Record}
		research, err := trainyard.NewTeam(ctx, "research", team)
		if err != nil {
			return err
		}
		for name, run := range map[string]trainyard.TrainingRunArgs{
			"first":  {Document: given.First.Properties.Document, Files: given.First.Properties.Files},
			"second": {Document: given.Second.Properties.Document, Files: given.Second.Properties.Files},
		} {
			run.Team = research.Record
			if _, err := trainyard.NewTrainingRun(ctx, name, &run); err != nil {
				return err
			}
		}
		return nil
	})
}
"""
GO_MODULE = (
    f"module lab\n\ngo 1.26.0\n\nrequire github.com/pulumi/pulumi/sdk/v3 v{PULUMI_VERSION}\n"
)
"""`package add` adds the SDK of the components."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("components"), ()) as found:
        yield found


def resources() -> Json:
    """The local stack as inputs of components, with two runs that share a dataset."""
    values = stack_values(PROJECT / "Pulumi.local.yaml")
    values["images"] = run_files.images(values["images"], PROJECT)
    for key in ("runs", "validation", "taintKey", "cohort", "operators"):
        del values[key]
    hello = yaml.safe_load((PROJECT / "training/runs/hello.yaml").read_text())
    files = {HELLO: (PROJECT / HELLO).read_text()}

    def run(version: int) -> Json:
        document = {**hello, "version": version, "overrides": {"steps": 40, "seed": version}}
        given = {"team": "${research.record}", "document": document, "files": files}
        return {"type": "trainyard:TrainingRun", "properties": given}

    team = {"platform": "${lab.record}", "name": "research"}
    return {
        "lab": {"type": "trainyard:Platform", "properties": values},
        "research": {"type": "trainyard:Team", "properties": team},
        "first": run(1),
        "second": run(2),
    }


def write(folder: Path, language: str) -> None:
    plugin = folder.parent / "plugin"
    plugin.mkdir()
    (plugin / "PulumiPlugin.yaml").write_text(yaml.safe_dump(PLUGIN))
    (plugin / "__main__.py").symlink_to(PROJECT / "components/__main__.py")
    project: Json = {"name": "lab", "runtime": language}
    if language != "go":  # there, `package add` writes it
        project["plugins"] = {"providers": [{"name": "trainyard", "path": str(plugin)}]}
    if language == "yaml":
        project["resources"] = resources()
    else:
        (folder / "resources.json").write_text(json.dumps(resources()))
        name, text = ("main.go", GO) if language == "go" else ("__main__.py", PYTHON)
        (folder / name).write_text(text)
    if language == "go":
        (folder / "go.mod").write_text(GO_MODULE)
    (folder / "Pulumi.yaml").write_text(json.dumps(project))
    # As `trainyard:charts` of the local stack pins them, made by the sandbox.
    charts.provide(add_ons.charts(parse(stack_values(PROJECT / "Pulumi.local.yaml"))), Console())
    (folder / ".charts").symlink_to(PROJECT / ".charts")


HOSTS = {"yaml": "pulumi-yaml", "go": "pulumi-language-go"}
"""Tools that bring the language hosts which the sandbox has not."""


@pytest.mark.parametrize(
    "language", ["python", *(pytest.param(name, marks=pytest.mark.full_only) for name in HOSTS)]
)
def test_a_program_in_an_empty_folder_trains(
    language: str, cluster: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    write(folder, language)
    if language in HOSTS:
        host = f"pulumi-language-{language}"
        tool = toolchain.ensure(Console(), HOSTS[language]).binaries[host]
        (cluster.state.bin / host).symlink_to(tool)
    if language == "go":
        region_kit.output_of(["pulumi", "package", "add", "../plugin"], folder, cluster.env)

    def pulumi(*words: str) -> str:
        command = ["pulumi", "--non-interactive", *words, "--stack", "test"]
        return region_kit.output_of(command, folder, cluster.env)

    def ended() -> bool:
        found = json.loads(cluster.kubectl("get", "jobsets", "-n", "team-research", "-o", "json"))
        ends = [one.get("status", {}).get("terminalState") for one in found["items"]]
        assert "Failed" not in ends
        return ends == ["Completed", "Completed"]

    def objects() -> str:
        kinds = "ns,nodes,clusterroles,validatingadmissionpolicies,storageclasses,priorityclasses"
        return cluster.kubectl("get", kinds, "-o", "name")

    pulumi("stack", "select", "--create")
    before = objects()
    # Nothing exists yet, and every object of the runs is shown.
    first = pulumi("preview")
    assert "JobSet hello-v1-" in first and "JobSet hello-v2-" in first
    pulumi("up", "--yes", "--skip-preview")
    until(ended, "both runs trained", 900)
    pulumi("up", "--yes", "--skip-preview", "--expect-no-changes")
    pulumi("destroy", "--yes", "--skip-preview")
    left = json.loads(pulumi("stack", "export"))["deployment"].get("resources", [])
    assert [one["type"] for one in left] == []
    assert objects() == before
