"""Which settings of two groups may differ: those that are listed, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trainer.config import parse
from trainer.config.settings import SourceConfig, TrainerConfig
from trainer.groups import MAY_DIFFER, describe_settings
from trainyard.elastic.same import differences

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
DATA_VERSION = "data.version"
CONFIG = parse({"steps": 100, "data": {"path": "/x"}, "groups": {"workers": 8}})


def replace(section: Any, **values: Any) -> Any:
    return section.model_copy(update=values)


CONFIG = replace(
    CONFIG,
    data=replace(CONFIG.data, sources=(SourceConfig(path="/y"),)),
    model=replace(CONFIG.model, ignore_tensors=("lm_head.*",)),
)


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of all settings; `[]` for the items of a list."""
    if isinstance(value, BaseModel):
        for name, inner in value:
            yield from keys(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, tuple):
        yield from keys(value[0], f"{path}[]")
    else:
        yield path


KEYS = sorted(keys(CONFIG))
DIFFERING = [key for key in KEYS if key in MAY_DIFFER or key.partition(".")[0] in MAY_DIFFER]
COMPARED = sorted(set(KEYS) - set(DIFFERING))


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


def refused(
    theirs: TrainerConfig, mine: TrainerConfig, version: str = "v1", other: str = "v1"
) -> list[str]:
    """Paths of the settings for which the group is refused."""
    lines = differences(describe_settings(mine, version), describe_settings(theirs, other))
    return [line.partition(":")[0] for line in lines]


def test_what_may_differ_are_settings() -> None:
    sections = {key.partition(".")[0] for key in KEYS}
    assert set(MAY_DIFFER) <= {*KEYS, *sections}


@pytest.mark.parametrize("key", DIFFERING)
def test_a_setting_that_may_differ_is_not_compared(key: str) -> None:
    assert refused(changed(CONFIG, key), CONFIG) == []


@pytest.mark.parametrize("key", sorted(set(COMPARED) - {DATA_VERSION, "model.path"}))
def test_a_group_with_another_setting_is_refused(key: str) -> None:
    path = key.replace("[]", "[0]")
    assert refused(CONFIG, changed(CONFIG, key)) == [path]


def test_the_version_in_use_is_compared_and_not_what_was_asked_for() -> None:
    asked = replace(CONFIG, data=replace(CONFIG.data, version="v1"))
    assert refused(asked, CONFIG) == []
    assert refused(CONFIG, CONFIG, "v2") == [DATA_VERSION]


def test_a_model_of_a_folder_is_compared_by_its_path_and_content(tmp_path: Path) -> None:
    for name, content in (("a", "{}"), ("b", '{"x": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    one, other = (
        replace(CONFIG, model=replace(CONFIG.model, path=str(tmp_path / n))) for n in "ab"
    )
    assert refused(one, other) == ["model.config_sha256", "model.path"]
