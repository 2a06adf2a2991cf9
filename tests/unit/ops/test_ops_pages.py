"""The pages of `trainyard run why` and `trainyard stack ready` document every symptom, stage and area."""

from __future__ import annotations

import re
from pathlib import Path

from ops.ready import production
from ops.ready.stages import STAGES

ROOT = Path(__file__).resolve().parents[3]


def sources(folder: str) -> str:
    return "\n".join(file.read_text() for file in sorted((ROOT / folder).glob("*.py")))


def words(text: str) -> list[str]:
    """What stands in backticks in the first column of a page's tables."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return [word for cell in cells for word in re.findall(r"`([\w-]+)`", cell)]


def test_the_page_about_waiting_has_a_row_for_each_symptom_and_for_nothing_else() -> None:
    documented = set(words((ROOT / "docs/why-a-run-waits.md").read_text()))
    text = sources("ops/symptoms")
    assert set(re.findall(r'symptom="([a-z-]+)"', text)) - documented == set()
    known = text + sources("trainyard")
    assert [word for word in sorted(documented) if f'"{word}"' not in known] == []


def test_the_page_about_readiness_has_the_stages_in_their_order() -> None:
    stages = (ROOT / "docs/readiness.md").read_text().split("## Validate nodes")[0]
    assert words(stages) == [*(stage.name for stage in STAGES), production.NAME]


def test_the_page_about_readiness_has_each_production_check_once() -> None:
    page = (ROOT / "docs/readiness.md").read_text().split("## Production")[1]
    page = page.split("## Validate nodes")[0]
    cells = re.findall(r"^\| ([A-Z][^|]+) \|", page, re.MULTILINE)
    documented = [area for cell in cells for area in cell.split(", ")]
    assert sorted(documented) == sorted(
        re.findall(r'snapshot\.row\(\s*"([^"]+)"', sources("ops/ready/production"))
    )
