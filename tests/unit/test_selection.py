"""What a change can break runs: the core always, then the nearest, as long as the time suffices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.selection import Unit, distances, select, units, uses

PROJECT = {
    "__main__.py": "import infra.pools\n",
    "infra/__init__.py": "",
    "infra/names.py": "",
    "infra/pools.py": "from infra import names\nHINT = 'python -m ops'\n",
    "infra/prices.py": "",
    "ops/__init__.py": "",
    "ops/__main__.py": "",
    "policies/rules.py": "",
    "policies/pack.py": "import rules\n",
    "sandbox/__init__.py": "",
    "tests/conftest.py": "import infra.prices\n",
    "tests/sandbox/conftest.py": "import sandbox\n",
    "tests/sandbox/test_up.py": "",
    "tests/unit/kit.py": "import infra.pools\n",
    "tests/unit/test_pools.py": "from tests.unit.kit import *\n",
    "tests/unit/test_prices.py": "def f():\n    from infra.prices import *\n",
    "tests/unit/test_ops.py": "'''Not __main__.py.'''\nrun(['-m', 'ops'])\n",
    "tests/unit/test_started.py": "start('-m', 'ops')\n",
    "tests/unit/test_pack.py": "import policies.pack\n",
    "tests/unit/test_docs.py": "page = ROOT / 'docs' / 'queues.md'\n",
    "tests/golden/test_golden.py": "",
}
DATA = ["docs/queues.md", "docs/costs.md", "tests/golden/stacks/prod.yaml", "infra/prices.yaml"]


@pytest.fixture
def used(tmp_path: Path) -> dict[str, set[str]]:
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return uses(tmp_path, DATA)


@pytest.mark.parametrize(
    ("changed", "affected"),
    [
        ("infra/names.py", {"unit/test_pools", "sandbox/test_up"}),
        ("infra/prices.py", {"unit/test_prices"}),
        ("ops/__main__.py", {"unit/test_ops", "unit/test_started"}),
        ("policies/rules.py", {"unit/test_pack"}),
        ("sandbox/__init__.py", {"sandbox/test_up"}),
        ("docs/queues.md", {"unit/test_docs"}),
        ("docs/costs.md", set()),
        ("tests/golden/stacks/prod.yaml", {"golden/test_golden"}),
        ("infra/prices.yaml", {"unit/test_pools", "unit/test_prices", "sandbox/test_up"}),
    ],
)
def test_a_change_affects_what_uses_it(
    used: dict[str, set[str]], changed: str, affected: set[str]
) -> None:
    near = distances(used, [changed])
    tests = {name for name in near if "/test_" in name}
    assert tests == {f"tests/{name}.py" for name in affected}


def test_steps_to_the_nearest_change_are_counted(used: dict[str, set[str]]) -> None:
    near = distances(used, ["infra/names.py", "tests/unit/kit.py"])
    assert (near["tests/unit/kit.py"], near["tests/unit/test_pools.py"]) == (0, 1)
    assert near["tests/sandbox/test_up.py"] == 4


MARKED = """
import pytest
pytestmark = [pytest.mark.sandbox]

@pytest.mark.long(30)
@pytest.mark.core
def test_wall(): ...
@pytest.mark.full_only
def test_in_full(): ...
def test_one(): ...
def test_two(): ...
"""


def test_marks_divide_a_file(tmp_path: Path) -> None:
    file = tmp_path / "test_marked.py"
    file.write_text(MARKED)
    assert units(file, "f.py") == [Unit("f.py", 2.0), Unit("f.py::test_wall", 30.0, core=True)]
    file.write_text(MARKED.replace("sandbox", "full_only"))
    assert units(file, "f.py") == []
    file.write_text("pytestmark = [pytest.mark.core, pytest.mark.long(7)]\ndef test_a(): ...\n")
    assert units(file, "f.py") == [Unit("f.py", 7.0, core=True)]


FILES = [
    Unit("core.py", 50.0, core=True),
    Unit("near.py", 30.0),
    Unit("near.py::test_long", 40.0),
    Unit("far.py", 10.0),
    Unit("far.py::test_short", 5.0),
    Unit("other.py", 1.0),
]
NEAR = {"near.py": 1, "far.py": 2}


def test_the_core_runs_and_the_nearest_as_long_as_the_time_suffices() -> None:
    found = select(FILES, NEAR, 100.0)
    names = [unit.id for unit in found.chosen]
    assert names == ["core.py", "near.py", "far.py::test_short", "far.py"]
    assert [unit.id for unit in found.left_out] == ["near.py::test_long"]
    assert [unit.id for unit in found.unaffected] == ["other.py"]
    assert select(FILES, {}, 10.0).arguments() == ["core.py"]


def test_pytest_is_given_the_longest_file_first_and_what_to_leave_out_of_a_file() -> None:
    near = {"near.py": 1, "far.py": 2}
    arguments = select(FILES[1:], near, 40.0).arguments()
    assert arguments == ["near.py", "--deselect=near.py::test_long", "far.py::test_short"]
    assert select(FILES, near, 1000.0).arguments() == ["near.py", "core.py", "far.py"]
