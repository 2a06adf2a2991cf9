"""The package's schema for Pulumi, from the JSON Schemas of the stack file and of the run file.

Names, types and meanings are those of the models, so that all languages have them and nothing is written twice.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

NAME: Final = "trainyard"
ROOT: Final = Path(__file__).resolve().parents[1]
RELEASE: Final[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LANGUAGES: Final = ("csharp", "go", "java", "nodejs", "python")
ANY: Final = {"$ref": "pulumi.json#/Any"}

_FIRST_WORD: Final = re.compile("^[A-Z][a-z]+")
"""What tells the shapes of a section apart, such as Existing and Eks of ClusterConfig."""
_RECORD: Final = "; a plain text or an output"
_KUBECONFIG: Final = {
    "kubeconfig": {
        "type": "string",
        "secret": True,
        "description": "Content or path of a kubeconfig of the cluster, which may be an output of your cluster. "
        "Default: what KUBECONFIG names.",
    }
}
"""The one input of each component that may be unknown in a preview and decides nothing."""

TEAM_KEYS: Final = ("members", "caps", "secrets", "restoreDrill", "results")
"""Keys of a team's entry in `Platform.teams` that no queue depends on: `Team` may give them again."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "taintKey": "dedicated",
    "cohort": NAME,
    "operators": {"kueue": {"provided": False}, "jobset": {"provided": False}},
}
"""Inputs of Platform that a stack file must have."""


def type_token(component: str) -> str:
    return f"{NAME}:index:{component}"


def _file(name: str) -> Json:
    found: Json = json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text())
    return found


class _Types:
    """Conversion of JSON Schemas, with the named types that were met."""

    def __init__(self, definitions: Json) -> None:
        self._definitions = definitions
        self.found: Json = {}

    def properties(self, keys: Mapping[str, Json]) -> Json:
        return {name: self._property(schema) for name, schema in keys.items()}

    def _property(self, schema: Json) -> Json:
        found = {**self._type(schema), "plain": True}
        if text := schema.get("description"):
            found["description"] = f"{text}{_default(schema, text)}"
        return found

    def _type(self, schema: Json) -> Json:
        listed: list[Json] = schema.get("anyOf") or schema.get("oneOf") or []
        choices = [one for one in listed if one != {"type": "null"}]
        if len(choices) == 1:
            return self._type(choices[0])
        if names := [one["$ref"].rpartition("/")[2] for one in choices if "$ref" in one]:
            return self._object(
                _FIRST_WORD.sub("", names[0]), [self._definitions[name] for name in names]
            )
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._object(name, [self._definitions[name]])
        kind = schema.get("type")
        if kind == "array":
            return {"type": "array", "items": {**self._type(schema["items"]), "plain": True}}
        if kind == "object":
            values = schema.get("additionalProperties")
            inner = self._type(values) if isinstance(values, dict) else ANY
            return {"type": "object", "additionalProperties": {**inner, "plain": True}}
        return {"type": kind} if kind else dict(ANY)

    def _object(self, name: str, shapes: list[Json]) -> Json:
        """Return the type of a definition, or of the shapes that a section may have: keys of one are optional."""
        token = type_token(name)
        if "enum" in shapes[0]:
            values = [{"name": value, "value": value} for value in shapes[0]["enum"]]
            self.found[token] = {"type": "string", "enum": values}
        elif "properties" not in shapes[0]:
            return self._type(shapes[0])
        elif token not in self.found:
            self.found[token] = {}
            keys: Json = {}
            for key, value in (pair for shape in shapes for pair in shape["properties"].items()):
                texts = dict.fromkeys((keys.get(key, value)["description"], value["description"]))
                keys[key] = {**value, "description": " ".join(texts)}
            required = set.intersection(*(set(shape.get("required", ())) for shape in shapes))
            self.found[token] = {
                "type": "object",
                "description": " ".join(shape.get("description", name) for shape in shapes),
                "properties": self.properties(keys),
                "required": sorted(required - {"provider"}),
            }
        return {"$ref": f"#/types/{token}"}


def _default(schema: Json, text: str) -> str:
    value = schema.get("default")
    shown = isinstance(value, str | int | float) and value != ""
    return f" Default: {json.dumps(value)}." if shown and "efault" not in text else ""


def _component(description: str, inputs: Json, required: list[str], outputs: Json) -> Json:
    return {
        "isComponent": True,
        "description": description,
        "inputProperties": inputs,
        "requiredInputs": required,
        "properties": outputs,
        "required": sorted(outputs),
    }


def _text(description: str, **more: Any) -> Json:
    return {"type": "string", "description": description, **more}


def _texts(description: str, **more: Any) -> Json:
    return {
        "type": "object",
        "additionalProperties": {"type": "string", **more},
        "description": description,
        **more,
    }


@cache
def package() -> Json:
    """Return the package's schema."""
    stack, run = _file("stack-file"), _file("run-file")
    types = _Types(
        stack["$defs"]
        | run["$defs"]
        | {"RunDocument": {**run, "required": ["name", "version", "nodes", "gpusPerNode", "image"]}}
    )
    keys = {
        key: value
        for key, value in stack["properties"]["config"]["properties"].items()
        if ":" not in key and key != "runs"
    }
    needed = {
        one["anyOf"][1]["required"][0] for one in stack["properties"]["config"]["allOf"]
    } - set(DEFAULTS)
    team = stack["$defs"]["TeamConfig"]["properties"]
    plain = {"plain": True}
    resources = {
        "Platform": _component(
            "Node pools, operators, queues, observability and admission policies, on a cluster that exists or on "
            "an EKS cluster of its own.",
            types.properties(keys) | _KUBECONFIG,
            sorted(needed),
            {
                "record": _text("What teams take as `platform`."),
                "kubeconfig": _text(
                    "Kubeconfig of the cluster: the given one, or that of the created cluster.",
                    secret=True,
                ),
                "namespaces": _texts("Namespace by team."),
                "queues": _texts("Name of the queue by team."),
                "site": {
                    "type": "object",
                    "additionalProperties": ANY,
                    "description": "Facts of a created cluster, such as its endpoint and buckets.",
                },
            },
        ),
        "Team": _component(
            "A team's namespace with quota, members, volumes, secrets and network policies.",
            {
                "platform": _text(f"Output `record` of the Platform{_RECORD}."),
                "name": _text("A team of the Platform.", **plain),
                **types.properties({key: team[key] for key in TEAM_KEYS}),
                **_KUBECONFIG,
            },
            ["name", "platform"],
            {
                "record": _text("What runs take as `team`."),
                "namespace": _text("Namespace of the team."),
                "queue": _text("Queue that its runs wait in; empty: the scheduler has none."),
            },
        ),
        "TrainingRun": _component(
            "A version of a run, queued for the team's nodes. A changed document is a new run.",
            {
                "team": _text(f"Output `record` of the Team{_RECORD}."),
                "document": {
                    **types._type({"$ref": "#/$defs/RunDocument"}),
                    **plain,
                    "description": "The run, with the keys of a run file.",
                },
                "files": _texts(
                    "Texts of the files that the document names, by their paths, such as "
                    "training/configs/NAME.yaml or those in the program's source folder.",
                    **plain,
                ),
                "commit": _text(
                    "Git commit of your program, for the run's record. Default: unknown.", **plain
                ),
                "context": _text("Context in the kubeconfig. Default: its current one.", **plain),
                **_KUBECONFIG,
            },
            ["document", "team"],
            {
                "runId": _text(
                    "Name of the run's object and of its folder: name, version and a hash of the document."
                ),
                "namespace": _text("Namespace of the run."),
                "apiVersion": _text("API version of the run's object."),
                "kind": _text("Kind of the run's object."),
                "queue": _text("Queue that it waits in."),
                "checkpointUri": _text("Where it writes checkpoints: pvc://NAMESPACE/CLAIM/PATH."),
            },
        ),
    }
    return {
        "name": NAME,
        "version": RELEASE,
        "displayName": "Trainyard",
        "description": "A GPU training platform on Kubernetes, its teams and their runs.",
        "language": {language: {"respectSchemaVersion": True} for language in LANGUAGES},
        "resources": {type_token(name): one for name, one in resources.items()},
        "types": dict(sorted(types.found.items())),
    }


def inputs(component: str) -> frozenset[str]:
    return frozenset(package()["resources"][type_token(component)]["inputProperties"])


def text() -> str:
    return json.dumps(package())
