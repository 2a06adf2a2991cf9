"""JSON Schemas of the files that people write, with the meaning of each key from its model.

A key's meaning is the docstring below its field; without one, the field's description.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from infra.config.model import StackConfig
from infra.domain import naming
from trainer.config.settings import TrainerConfig
from training.run_schema import RunFile

Schema = dict[str, Any]

_OTHER_NAMESPACES: Final = f"^(?!{naming.PROJECT}:)[A-Za-z0-9_-]+:"
"""Keys of providers, such as `aws:region`, which are not this project's to check."""


_FORM: Final = re.compile("such as|DNS label|digits|at least")
"""Parts of an expected form that say more than the type of the key."""


class _WithMeanings(GenerateJsonSchema):
    """Schemas that describe every key and allow no other."""

    def model_schema(self, schema: Any) -> Schema:
        return self._described(super().model_schema(schema), schema["cls"])

    def _described(self, found: Schema, model: type[Any]) -> Schema:
        docs = field_docs(model)
        fields = getattr(model, "model_fields", {})
        for name in docs.keys() | fields.keys():
            key = (fields[name].alias if name in fields else None) or name
            if key in found.get("properties", {}):
                expected = fields[name].description if name in fields else None
                found["properties"][key] |= _meaning(docs.get(name), expected)
        return found


def _meaning(doc: str | None, expected: str | None) -> Schema:
    if doc and expected and _FORM.search(expected):
        return {"description": f"{doc} Allowed: {expected}."}
    text = doc or expected
    return {"description": text} if text else {}


def field_docs(model: type[Any]) -> Mapping[str, str]:
    """The docstring of every field of a class and its bases, on one line."""
    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):  # a class that is built in, or made by a function
            continue
        body = ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, following in zip(body.body, body.body[1:], strict=False):
            match field, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return docs


def _of(model: Any) -> Schema:
    found: Schema = _plain(TypeAdapter(model).json_schema(schema_generator=_WithMeanings))
    return found


def _plain(value: Any) -> Any:
    """Without the titles that pydantic derives from names."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k != "title" or not isinstance(v, str)}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def stack_file() -> Schema:
    """A Pulumi.STACK.yaml: its keys with the project's namespace or without."""
    config = _of(StackConfig)
    definitions = config.pop("$defs")
    required = config.pop("required")
    keys = config["properties"]
    config["properties"] = {f"{naming.PROJECT}:{key}": value for key, value in keys.items()} | keys
    config["allOf"] = [
        {"anyOf": [{"required": [f"{naming.PROJECT}:{key}"]}, {"required": [key]}]}
        for key in required
    ]
    config["patternProperties"] = {_OTHER_NAMESPACES: {}}
    text = {"type": "string"}
    return {
        "type": "object",
        "required": ["config"],
        "additionalProperties": False,
        "properties": {
            "config": config,
            "encryptionsalt": text,
            "encryptedkey": text,
            "secretsprovider": text,
            "environment": {},
        },
        "$defs": definitions,
    }


def run_file() -> Schema:
    """One document of training/runs/NAME.yaml."""
    return _of(RunFile)


def trainer_configuration() -> Schema:
    """A file of training/configs."""
    return _of(TrainerConfig)


SCHEMAS: Final[Mapping[str, tuple[str, Callable[[], Schema]]]] = {
    "stack-file": ("Stack file", stack_file),
    "run-file": ("Run file", run_file),
    "trainer-configuration": ("Trainer configuration", trainer_configuration),
}
"""By name of the schema's file: its title, and what makes it."""


def text(name: str) -> str:
    """The file of a schema."""
    title, make = SCHEMAS[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(head | make(), indent=1, ensure_ascii=False) + "\n"
