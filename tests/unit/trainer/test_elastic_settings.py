"""Which settings of two groups may differ: those that are listed, each with a reason, and no others."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from training.config_errors import ConfigError
from training.trainer.config import TrainerConfig, parse
from training.trainer.config.data import SourceConfig
from training.trainer.elastic import settings
from training.trainer.elastic.settings import DATA_VERSION, MAY_DIFFER, describe_settings
from training.trainer.elastic.transfer import require_same

CPU = torch.device("cpu")
CONFIG = parse({"steps": 100, "data": {"path": "/x"}, "groups": {"max": 4}})
CONFIG = replace(
    CONFIG,
    data=replace(CONFIG.data, sources=(SourceConfig(path="/y"),)),
    model=replace(CONFIG.model, ignore_tensors=("lm_head.*",)),
)


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of all settings; `[]` for the items of a list."""
    if is_dataclass(value):
        for field in fields(value):
            yield from keys(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))
    elif isinstance(value, tuple):
        yield from keys(value[0], f"{path}[]")
    else:
        yield path


KEYS = sorted(keys(CONFIG))
COMPARED = [key for key in KEYS if key not in MAY_DIFFER]


def changed(value: Any, key: str) -> Any:
    """The same settings with another value of one."""
    if not key:
        return _other(value)
    name, _, rest = key.partition(".")
    if name.endswith("[]"):
        items = getattr(value, name[:-2])
        first = changed(items[0], rest) if rest else _other(items[0])
        return replace(value, **{name[:-2]: (first, *items[1:])})
    return replace(value, **{name: changed(getattr(value, name), rest)})


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    return 7 if value is None else value + 1


def described(config: TrainerConfig, version: str = "v1") -> dict[str, Any]:
    """As the other group receives it."""
    found: dict[str, Any] = json.loads(json.dumps(describe_settings(config, version, CPU)))
    return found


def refused(theirs: dict[str, Any], mine: dict[str, Any]) -> list[str]:
    """Paths of the settings for which the group is refused."""
    try:
        require_same(theirs, mine)
    except ConfigError as error:
        return [str(issue).partition(":")[0] for issue in error.issues]
    return []


def test_what_may_differ_are_settings_and_each_has_a_reason() -> None:
    assert set(MAY_DIFFER) <= set(KEYS)
    assert all(MAY_DIFFER.values())


@pytest.mark.parametrize("key", sorted(MAY_DIFFER))
def test_a_setting_that_may_differ_is_not_compared(key: str) -> None:
    assert described(changed(CONFIG, key)) == described(CONFIG)


@pytest.mark.parametrize("key", sorted(set(COMPARED) - {DATA_VERSION, "model.path"}))
def test_a_group_with_another_setting_is_refused(key: str) -> None:
    path = key.replace("[]", "[0]")
    assert refused(described(CONFIG), described(changed(CONFIG, key))) == [path]


def test_the_version_in_use_is_compared_and_not_what_was_asked_for() -> None:
    asked = replace(CONFIG, data=replace(CONFIG.data, version="v1"))
    assert described(asked) == described(CONFIG)
    assert refused(described(CONFIG, "v2"), described(CONFIG)) == [DATA_VERSION]


def test_a_setting_that_only_the_others_have_is_refused() -> None:
    fewer = replace(CONFIG, data=replace(CONFIG.data, sources=()))
    assert refused(described(CONFIG), described(fewer)) == ["data.sources[0].weight"]


@pytest.mark.parametrize(
    ("module", "name", "value", "path"),
    [
        (torch.backends.cpu, "get_cpu_capability", "NONE", "CPU capability"),
        (importlib.metadata, "version", "0.0", "package torch"),
    ],
)
def test_another_machine_or_library_is_refused(
    module: Any, name: str, value: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = described(CONFIG)
    monkeypatch.setattr(module, name, lambda *_: value)
    assert path in refused(described(CONFIG), mine)


def test_another_gpu_and_a_cpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(("H100", "A100"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: next(names))
    gpu = torch.device("cuda", 0)
    first, second = (settings.describe_platform(gpu) for _ in range(2))
    assert refused(first, second) == ["GPU model"]
    assert "device in use" in refused(first, settings.describe_platform(CPU))


def test_a_model_of_a_folder_is_compared_by_its_path_and_content(tmp_path: Path) -> None:
    for name, content in (("a", "{}"), ("b", '{"x": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    one, other = (
        replace(CONFIG, model=replace(CONFIG.model, path=str(tmp_path / n))) for n in "ab"
    )
    assert refused(described(one), described(other)) == ["model.config_sha256", "model.path"]
