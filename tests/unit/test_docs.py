"""Documentation pages: links, files, commands, options and settings exist."""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra import config
from infra.domain import catalog

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "tests" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
OURS = (
    *("infra", "training", "trainer", "trainyard", "sandbox", "ops", "bench", "tools"),
    *("policies", "tests", "docs"),
)
TO_BE_MADE = {
    "infra/addons/NAME.py",
    "training/runs/my-run.yaml",
    "training/production/tracking",
    "policies/stacks/STACK.json",
    "policies/.venv",
}
"""Files that the reader of a page or a command creates."""
OF_OTHERS = ("pytest", "trainyard.launch")
"""Commands with options of other programs: the launcher takes those of the program that it starts."""


def blocks(text: str, language: str = r"\w*") -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.M | re.S)


def prose(text: str) -> str:
    return re.sub(r"^ *```\w*\n.*?^ *```$", "", text, flags=re.M | re.S)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors that GitHub derives from the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", prose(page.read_text()), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return frozenset(re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in plain)


@cache
def sources(package: str) -> str:
    """Source text of a module's command: of its package, or of its file."""
    path = ROOT / package.replace(".", "/")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return "\n".join(file.read_text() for file in files)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each project module that a page runs, with its arguments."""
    lines = "\n".join(blocks(text)).replace("\\\n", " ").splitlines()
    lines += [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose(text))]
    for line in lines:
        line = re.sub(r"(^|\s)trainyard (?=[a-z])", r"\1-m ops ", line)
        for part in re.split(r"(?:^|\s)-m ", line.split("  #")[0])[1:]:
            module, *words = re.split(r"\s[|>&;]|[;)\"]", part)[0].split() or [""]
            if module.split(".")[0] in OURS or module in OF_OTHERS:
                yield module, words


def test_every_link_resolves_to_a_page_and_a_heading() -> None:
    astray = []
    for page in PAGES:
        links = re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", prose(page.read_text()))
        for target, anchor in links:
            there = (page.parent / target).resolve() if target else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                astray.append(f"{page.name}: {target}#{anchor}")
    assert astray == []


def test_every_file_that_a_page_mentions_exists() -> None:
    paths = [path.relative_to(ROOT / "tests") for path in ROOT.glob("tests/**/test_*.py")]
    tests = {path.name for path in paths} | {path.as_posix() for path in paths}
    missing = []
    for page in PAGES:
        for span in re.findall(r"`([\w./-]+)`", prose(page.read_text())):
            path = "/" in span and span.split("/")[0] in OURS and span not in TO_BE_MADE
            test = re.fullmatch(r"(\w+/)*test_\w+\.py", span)
            if (path or test) and not (ROOT / span).exists() and span not in tests:
                missing.append(f"{page.name}: {span}")
    assert missing == []


def test_every_command_that_a_page_shows_exists_with_its_options() -> None:
    wrong = []
    for page in PAGES:
        for module, words in commands(page.read_text()):
            shown = f"{page.name}: {module} {' '.join(words)}"
            files = [word for word in words if word.startswith("tests/")]
            wrong += [f"{shown}: {file}" for file in files if not (ROOT / file).exists()]
            if module in OF_OTHERS:
                continue
            text = sources(module)
            words = words[: words.index("--")] if "--" in words else words
            options = {word.split("=")[0] for word in words if word.startswith("--")}
            if words and "add_subparsers" in text and re.fullmatch(r"[a-z]+", words[0]):
                options.add(words[0])
            wrong += [f"{shown}: {name}" for name in sorted(options) if f'"{name}"' not in text]
    assert wrong == []


def unknown_settings(snippet: object, stack: dict[str, Any]) -> list[str]:
    """Keys of a page's snippet that are not valid in a stack file; values may be examples."""
    values = copy.deepcopy(stack)
    if isinstance(snippet, dict):
        own = {key.removeprefix("trainyard:"): value for key, value in snippet.items()}
        values |= own | {"operators": values["operators"] | own.get("operators", {})}
    elif isinstance(snippet, list):
        values["teams" if "tier" in snippet[0] else "nodePools"] += snippet
    try:
        config.parse(values)
    except config.ConfigError as error:
        return [line for line in error.lines if "got an unknown key" in line]
    return []


def vcpus(nodes: dict[str, Any]) -> int:
    """vCPUs of a pool at its maximum size."""
    types = catalog.load().types
    return int(nodes["max"] * max(types[name].vcpu for name in nodes["instanceTypes"]))


def test_every_stack_setting_that_a_page_shows_exists() -> None:
    stack = config.stack_values(ROOT / "Pulumi.prod.yaml")
    wrong = []
    shown = 0
    for page in PAGES:
        for block in blocks(page.read_text(), "yaml"):
            snippet = yaml.safe_load(textwrap.dedent(block))
            if isinstance(snippet, list) or next(iter(snippet)).startswith("trainyard:"):
                shown += 1
                wrong += [f"{page.name}: {line}" for line in unknown_settings(snippet, stack)]
    assert shown > 10 and wrong == []


def test_documented_previews_and_updates_use_the_policy_pack_of_the_stack() -> None:
    bare = []
    for page in PAGES:
        for stack, rest in re.findall(
            r"--stack (dev|prod)\b(.*--policy-pack policies.*)", page.read_text()
        ):
            if f"--policy-pack-config policies/stacks/{stack}.json" not in rest:
                bare.append(f"{page.name}: {stack}{rest}")
    assert bare == []


def test_bootstrap_page_requests_the_vcpu_quota_of_the_committed_stacks() -> None:
    page = (ROOT / "docs/aws/bootstrap.md").read_text()
    for column, stack in enumerate(("dev", "prod")):
        values = config.stack_values(ROOT / f"Pulumi.{stack}.yaml")
        pools = {pool["name"]: pool for pool in values["nodePools"]}
        cells = re.findall(
            r"^\| L-(417A185B|7212CCBC|1216C47A) \| [^|]+ \| ([^|]+) \| ([^|]+) \|", page, re.M
        )
        asked = {code: int(re.sub(r".*: |,", "", cell[column])) for code, *cell in cells}
        system = values["cluster"]["systemNodes"]
        assert asked == {
            "417A185B": vcpus(pools["ondemand"]),
            "7212CCBC": vcpus(pools["spot"]),
            "1216C47A": vcpus(pools["cpu"]) + vcpus(system),
        }


def test_every_make_target_that_a_page_mentions_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set()
    for page in PAGES:
        text = page.read_text()
        named |= set(re.findall(r"`make ([a-z-]+)", text))
        named |= set(re.findall(r"^\s*make ([a-z-]+)", "\n".join(blocks(text)), re.M))
    assert named and named - targets == set()


def test_every_page_that_a_program_mentions_exists() -> None:
    texts = [
        sources(package) for package in ("infra", "training", "sandbox", "ops", "policies.rules")
    ]
    named = set(re.findall(r"\bdocs/[\w/.-]+\.md(?:#[\w-]+)?", "\n".join(texts)))
    assert named
    for name in sorted(named):
        path, _, anchor = name.partition("#")
        assert (ROOT / path).exists(), name
        assert not anchor or anchor in anchors(ROOT / path), name
