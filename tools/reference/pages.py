"""Reference pages of the files that people write, from their JSON Schemas.

Examples are values of the committed files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from infra.addons.registry import ADD_ONS
from tools.reference.schemas import SCHEMAS, Schema

ROOT: Final = Path(__file__).resolve().parents[2]

_EXISTING: Final = "tests/golden/existing-cluster.yaml"
_ALLOWED: Final = re.compile(r" Allowed: (.+?)\.?$")
_DEFAULT: Final = re.compile(r" Default: (?:none(?:[,;] |(?=\.$)))?(.*?)\.?$")
"""Ends of a meaning that are about the type or the default."""
_SAYS_NOTHING: Final = ("text", "mapping")
"""Types that the page leaves out: most keys are text, and the keys of a mapping follow it."""
_LONGEST: Final = 60
"""Characters of an example or a default; a longer one is left out."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a page has besides its tables."""

    intro: str
    files: tuple[str, ...]
    """Committed files that examples are taken from, by pattern."""


PAGES: Final[Mapping[str, Page]] = {
    "stack-file": Page(
        intro="Keys of `Pulumi.STACK.yaml`, below `config:` and with the prefix `trainyard:`. "
        "Check a file with `.venv/bin/python -m infra.config check Pulumi.STACK.yaml`.",
        files=("Pulumi.prod.yaml", "Pulumi.dev.yaml", "Pulumi.local.yaml", _EXISTING),
    ),
    "run-file": Page(
        intro="Keys of a file in `training/runs/`, which has one YAML document per version of a "
        "run; see [Add a run](../submit-a-run.md).",
        files=("training/runs/*.yaml",),
    ),
    "trainer-configuration": Page(
        intro="Keys of a file in `training/configs/`. A run file overrides them in `overrides`, a "
        "command line with `--set KEY=VALUE`.",
        files=("training/configs/*.yaml",),
    ),
}


def text(name: str) -> str:
    """The page of a file, as Markdown."""
    title, make = SCHEMAS[name]
    schema = make()
    page = PAGES[name]
    root = schema["properties"]["config"] if name == "stack-file" else schema
    tree = _Sections(schema.get("$defs", {}), _committed(page.files))
    lines = [
        f"# {title}",
        f"{page.intro} Editors complete and check the keys with",
        f"[{name}.schema.json](../schemas/{name}.schema.json).",
        "",
        "A key without a type is text, or has the keys below it. One that is not required may be absent. "
        "Generated from the models by `make reference`.",
    ]
    for heading, rows in tree.sections(_without_prefix(root)):
        lines += ["", f"## {heading}", *rows]
    if name == "stack-file":
        lines += ["", *_add_on_versions()]
    return "\n".join(lines) + "\n"


def _add_on_versions() -> Iterator[str]:
    """The pinned version, namespace and Kubernetes range of each add-on."""
    yield "## Add-on versions"
    yield "Kubernetes: range supported or tested upstream. Sandbox: the version that it or a test runs."
    yield ""
    yield "| Add-on | Chart | Application | Namespace | Kubernetes | Sandbox |"
    yield "|---|---|---|---|---|---|"
    for name, add_on in ADD_ONS.items():
        first, last = add_on.kubernetes
        cells = (
            f"`{name}`",
            add_on.version or "EKS default",
            add_on.app_version or "EKS default",
            f"`{add_on.namespace}`",
            f"{first} to {last}" if last else f"{first} or newer",
            add_on.toolchain or "-",
        )
        yield f"| {' | '.join(cells)} |"


def _without_prefix(root: Schema) -> Schema:
    names = {name: value for name, value in root["properties"].items() if ":" not in name}
    required = root.get("required", [name for name in names if _is_required(root, name)])
    return {**root, "properties": names, "required": required}


def _is_required(root: Schema, name: str) -> bool:
    return any({"required": [name]} in one["anyOf"] for one in root.get("allOf", ()))


def _committed(patterns: tuple[str, ...]) -> list[Any]:
    """The documents of files, keys of a stack without their prefix."""
    documents: list[Any] = []
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            documents += yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return [
        {key.rpartition(":")[2]: value for key, value in one.get("config", one).items()}
        if isinstance(one.get("config", one), dict)
        else one
        for one in documents
    ]


class _Section(NamedTuple):
    """One table of a page."""

    path: str
    variant: str
    schema: Schema


class _Sections:
    """Objects of a schema, each with the path at which it is found first."""

    def __init__(self, definitions: Mapping[str, Schema], documents: list[Any]) -> None:
        self._definitions = definitions
        self._documents = documents
        self._done: set[str] = set()

    def sections(self, root: Schema) -> Iterator[tuple[str, list[str]]]:
        """Heading and rows of the root and of every key of it that is an object; the key's row describes it."""
        waiting: list[_Section] = [_Section("", "", root)]
        while waiting:
            section = waiting.pop(0)
            inner: list[_Section] = []
            rows = [*self._rows(section.path, "", section.schema, inner)]
            if rows:
                heading = f"`{section.path}`{section.variant}" if section.path else "Top level"
                yield heading, rows
            waiting[:0] = inner

    def _rows(self, path: str, prefix: str, schema: Schema, inner: list[_Section]) -> Iterator[str]:
        """Rows of an object, each followed by those of the object in it.

        Objects of the root, of several kinds, or of several keys are added to `inner`.
        """
        found = [one for one in self._at(path) if _fits(one, schema)]
        uses = Counter(name for _, value in _keys(schema) for _, name in self._objects(value))
        for key, value in _keys(schema):
            if "const" in value:  # the heading has it
                continue
            yield self._row(key, value, schema, found, prefix)
            targets = [t for t in self._objects(value) if t[1] not in self._done]
            for suffix, name in targets:
                self._done.add(name)
                target, below = self._definitions[name], f"{path}.{key}" if path else key
                if path and len(targets) == 1 and uses[name] == 1:
                    yield from self._rows(below + suffix, f"{prefix}{key}{suffix}.", target, inner)
                else:
                    label = _variant(target) if len(targets) > 1 else ""
                    inner.append(_Section(below + suffix, label, target))

    def _at(self, path: str) -> list[Any]:
        """What the documents have at a path."""
        steps = re.split(r"\.|(?=\[\])", path) if path else []
        return [value for document in self._documents for value in _values(document, steps)]

    def _objects(self, schema: Schema, suffix: str = "") -> Iterator[tuple[str, str]]:
        """Definitions of objects in a value, and how the path to them goes on."""
        if name := _definition(schema):
            if "properties" in self._definitions[name]:
                yield suffix, name
            return
        for option in schema.get("anyOf", []) + schema.get("oneOf", []):
            yield from self._objects(option, suffix)
        if "items" in schema:
            yield from self._objects(schema["items"], suffix + "[]")
        if isinstance(schema.get("additionalProperties"), dict):
            yield from self._objects(schema["additionalProperties"], suffix + ".NAME")

    def _row(self, key: str, schema: Schema, parent: Schema, found: list[Any], prefix: str) -> str:
        default = "required" if key in parent.get("required", ()) else _shown(schema.get("default"))
        kind, meaning = self._type(schema), self._meaning(schema)
        inside = [*self._objects(schema)]
        if inside and default != "required":
            default = ""  # its rows have them
        if kind == "text" and (form := _ALLOWED.search(meaning)):
            kind, meaning = form[1], meaning[: form.start()]
        if not default and (said := _DEFAULT.search(meaning)):
            default, meaning = said[1], meaning[: said.start()]
        if not inside and re.match("list|mapping", kind) and not re.search("such as|`", meaning):
            example = self._example([one[key] for one in found if key in one], schema)
            meaning += f" Example: {example}" if example else ""
        if default and default != "required":
            default = f"default: {default}"
        facts = ", ".join(filter(None, ("" if kind in _SAYS_NOTHING else kind, default)))
        return f"- `{prefix}{key}`{f' ({facts})' if facts else ''}: {meaning}"

    def _meaning(self, schema: Schema) -> str:
        if "description" in schema:
            return str(schema["description"])
        return next(
            (str(found) for one in self._resolved(schema) if (found := one.get("description"))), ""
        )

    def _resolved(self, schema: Schema) -> Iterator[Schema]:
        if name := _definition(schema):
            yield self._definitions[name]
        for option in schema.get("anyOf", []) + schema.get("oneOf", []):
            yield from self._resolved(option)

    def _type(self, schema: Schema) -> str:
        if name := _definition(schema):
            target = self._definitions[name]
            if "properties" not in target:
                return self._type(target)
            return "mapping"
        options = schema.get("anyOf", []) + schema.get("oneOf", [])
        if options:
            types = [self._type(one) for one in options if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(types))
        if "const" in schema or "enum" in schema:
            values = schema.get("enum") or [schema["const"]]
            return ", ".join(f"`{value}`" for value in values)
        kind = schema.get("type")
        if kind == "array":
            of = self._type(schema["items"]) if "items" in schema else "mapping"
            return "list" if of == "mapping" else f"list of {of}"
        if kind == "object":
            inner = schema.get("additionalProperties")
            return f"mapping to {self._type(inner)}" if isinstance(inner, dict) else "mapping"
        names = {"integer": "integer", "number": "number", "string": "text", "boolean": "boolean"}
        return names.get(str(kind), "any") + _bounds(schema)

    def _example(self, values: list[Any], schema: Schema) -> str:
        others = (_shown(value) for value in values if value != schema.get("default"))
        return next(filter(None, others), "")


def _definition(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _keys(schema: Schema) -> list[tuple[str, Schema]]:
    return list(schema["properties"].items())


def _tags(schema: Schema) -> dict[str, Any]:
    """Keys whose value says which variant of an object it is."""
    return {key: one["const"] for key, one in _keys(schema) if "const" in one}


def _fits(value: Any, schema: Schema) -> bool:
    """Whether a value is of this variant, and no other one."""
    if not isinstance(value, dict) or not set(schema.get("required", ())) <= value.keys():
        return False
    return all(value[key] == tag for key, tag in _tags(schema).items())


def _variant(schema: Schema) -> str:
    """What a heading adds, where a path has objects of several kinds."""
    tags = [f"`{key}: {value}`" for key, value in _tags(schema).items()]
    return " with " + ", ".join(tags or [f"`{key}`" for key in schema["required"]])


def _bounds(schema: Schema) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    if schema.keys() >= {"minimum", "maximum"}:
        return f" {schema['minimum']} to {schema['maximum']}"
    bounds = [f"{sign} {schema[name]:g}" for name, sign in words.items() if name in schema]
    return f" {', '.join(bounds)}" if bounds else ""


def _values(value: Any, steps: list[str]) -> Iterator[Any]:
    if not steps:
        yield value
    elif steps[0] == "[]" and isinstance(value, list):
        for item in value:
            yield from _values(item, steps[1:])
    elif steps[0] == "NAME" and isinstance(value, dict):
        for item in value.values():
            yield from _values(item, steps[1:])
    elif isinstance(value, dict) and steps[0] in value:
        yield from _values(value[steps[0]], steps[1:])


def _shown(value: Any) -> str:
    """A value as YAML on one line; empty where it is nothing or too long."""
    if value is None or value in ({}, [], ""):
        return ""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    text = text.removesuffix("\n").removesuffix("\n...")
    return f"`{text}`" if len(text) <= _LONGEST else ""
