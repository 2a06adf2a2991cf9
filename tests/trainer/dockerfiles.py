"""The trainer's Dockerfile, read strictly, and those of its steps that need no container."""

from __future__ import annotations

import fnmatch
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCKERFILE: Final = ROOT / "training/image/Dockerfile"
INSTRUCTIONS: Final = frozenset({"ARG", "FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "LABEL"})
"""Those that the file uses; another one needs a decision here, too."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One COPY. `stage`: the stage that it copies from; empty: the folder that is built."""

    stage: str
    sources: tuple[str, ...]
    target: str


@dataclass(kw_only=True)
class Stage:
    """One stage, its instructions in their order."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def texts(self, instruction: str) -> list[str]:
        """Arguments of an instruction, one text for each time."""
        return [text for name, text in self.steps if name == instruction]

    def commands(self) -> list[str]:
        """Commands of all RUN, divided at &&, without options of the builder."""
        found: list[str] = []
        for text in self.texts("RUN"):
            words = text.split(" ")
            while words[0].startswith("--"):
                words.pop(0)
            found += re.split(r"\s+&&\s+", " ".join(words))
        return found

    def copies(self) -> list[Copy]:
        """All COPY."""
        found = []
        for text in self.texts("COPY"):
            words = shlex.split(text)
            options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
            assert set(options) <= {"from"}, text
            *sources, target = (word for word in words if not word.startswith("--"))
            stage = options.get("from", "")
            found.append(Copy(stage=stage, sources=tuple(sources), target=target))
        return found

    def pairs(self, instruction: str) -> dict[str, str]:
        """NAME=VALUE of ENV or LABEL."""
        words = [word for text in self.texts(instruction) for word in shlex.split(text)]
        return dict(word.split("=", 1) for word in words)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and argument of each instruction; comments and continued lines as Docker reads them."""
    whole = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or not (line.strip() or whole):
            continue
        whole += line.strip() if whole else line
        if whole.endswith("\\"):
            whole = whole[:-1].rstrip() + " "
            continue
        name, _, argument = whole.partition(" ")
        if name not in INSTRUCTIONS or "<<" in argument or argument.startswith("["):
            raise ValueError(f"{name} {argument}: not a form that is understood here")
        yield name, argument.strip()
        whole = ""
    if whole:
        raise ValueError(f"{whole}: the last line continues")


def stages(text: str) -> dict[str, Stage]:
    """The stages by name, the last one as `image`, with the values of ARG before the first one filled in."""
    values: dict[str, str] = {}
    found: list[Stage] = []
    for name, argument in instructions(text):
        if name == "FROM":
            base, _, alias = argument.partition(" AS ")
            for key, known in values.items():
                base = base.replace(f"${{{key}}}", known)
            assert "$" not in base, f"FROM {argument}"
            found.append(Stage(name=alias or "image", base=base))
        elif not found:
            assert name == "ARG", f"{name} before the first stage"
            name, _, value = argument.partition("=")
            values[name] = value
        else:
            found[-1].steps.append((name, argument))
    assert len({stage.name for stage in found}) == len(found)
    return {stage.name: stage for stage in found}


def is_sent(path: str, ignore: Path) -> bool:
    """Whether the builder gets this file: the last pattern that matches it or a folder of it decides."""
    sent = True
    for line in ignore.read_text().splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        wanted = pattern.startswith("!")
        parts = path.split("/")
        heads = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        # ** stands for any number of folders, none too.
        name = pattern.removeprefix("!").rstrip("/")
        forms = (name, name.removeprefix("**/"))
        if any(fnmatch.fnmatchcase(head, form) for head in heads for form in forms):
            sent = wanted
    return sent


def context() -> list[str]:
    """Files that the builder gets: of those in the repository, what .dockerignore leaves."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    ignore = DOCKERFILE.with_name("Dockerfile.dockerignore")
    return [path for path in listed.stdout.splitlines() if is_sent(path, ignore)]


def copied(copy: Copy, files: list[str]) -> Mapping[str, str]:
    """Target by source of each file that a COPY from the built folder names."""
    found: dict[str, str] = {}
    for source in copy.sources:
        if source in files:
            folder = copy.target.endswith("/")
            name = source.rpartition("/")[2]
            found[source] = f"{copy.target.rstrip('/')}/{name}" if folder else copy.target
        inside = [path for path in files if path.startswith(f"{source}/")]
        found |= {path: f"{copy.target}{path.removeprefix(source)}" for path in inside}
        assert source in files or inside, f"COPY {source}: the builder does not get it"
    return found
