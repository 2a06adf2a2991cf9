"""program.json: which launcher starts which command, with which environment and source."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.contract import LAUNCHERS, PLACEHOLDERS
from trainyard.placeholders import expand, unknown_placeholders
from trainyard.source import SourceError, unpack


class ProgramError(Exception):
    """The program cannot run as described; one line per mistake."""


@dataclass(frozen=True)
class Program:
    """What a run starts, with placeholders not yet expanded."""

    launcher: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, str] | None = None
    """`path` of the archive's parts and `sha256`; None: the code is in the image."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All of program.json, for the keys of one launcher."""

    def unpack_source(self, facts: dict[str, str]) -> Path | None:
        """Unpack and verify the source; return its folder, None without one. Raises ProgramError."""
        if self.source is None:
            return Path(facts["source"]) if facts.get("source") else None
        folder = Path(facts.get("source") or f"{facts['scratch']}/source")
        facts["source"] = str(folder)
        try:
            return unpack(Path(self.source["path"]), self.source["sha256"], folder)
        except SourceError as error:
            raise ProgramError(str(error)) from None


def read_program(file: Path) -> Program:
    """Read program.json. Raises ProgramError with every mistake."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"is not JSON: {error}"
        raise ProgramError(f"{file}: {why}") from None
    if not isinstance(values, dict):
        raise ProgramError(f"{file}: must be a JSON object")
    command, env = values.get("command"), values.get("env") or {}
    mistakes = []
    if values.get("launcher") not in LAUNCHERS:
        mistakes.append(
            f"launcher: {values.get('launcher')!r} is not valid; must be one of {', '.join(LAUNCHERS)}"
        )
    if not isinstance(command, list) or not command or not all(isinstance(w, str) for w in command):
        mistakes.append("command: must be a list of words with at least one")
        command = []
    texts = [*command, *env.values()]
    mistakes += [
        f"command: {{{name}}} is not a placeholder; valid are {', '.join(sorted(PLACEHOLDERS))}"
        for name in unknown_placeholders(texts)
    ]
    if mistakes:
        raise ProgramError("\n".join(f"{file}: {line}" for line in mistakes))
    return Program(values["launcher"], tuple(command), env, values.get("source"), values)


def program_environment(
    program: Program, facts: Mapping[str, str], inherited: Mapping[str, str], folder: Path | None
) -> tuple[list[str], dict[str, str]]:
    """Return the command of the ranks and the environment of their launcher, expanded. Raises ProgramError.

    The program's own variables win over those of the container and its image; the config check refuses the
    names that the platform needs. `folder`: the unpacked source, the working directory of the ranks; it is
    not on PYTHONPATH here, because a module in it may have a name that the launcher needs (see rank.py).
    """
    values = {name: facts.get(name, "") for name in PLACEHOLDERS}
    command = [expand(word, values) for word in program.command]
    own = {name: expand(text, values) for name, text in program.env.items()}
    env = {**inherited, **own}
    env |= {PLACEHOLDERS[name].variable: value for name, value in facts.items() if value}
    script = command[0]
    if script.endswith(".py") and not (folder or Path.cwd()).joinpath(script).is_file():
        where = folder or Path.cwd()
        raise ProgramError(
            f"command: {script}: no such file in {where}; name a script of program.source or of the image"
        )
    if script == "-m" and len(command) > 1 and not _is_importable(command[1], folder or Path.cwd()):
        raise ProgramError(
            f"command: -m {command[1]}: no such module in {folder or Path.cwd()} or in the image; name one of "
            "program.source, by its path in that folder, or of the image"
        )
    return command, env


def _is_importable(module: str, folder: Path) -> bool:
    """Return whether Python finds the module; inside a package of the image this is not checked.

    Nothing is imported, not even the package that it is in.
    """
    top, *rest = module.split(".")
    finders = (finder.find_spec(top, [str(folder), *sys.path]) for finder in sys.meta_path)
    spec = next(filter(None, finders), None)
    places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    if spec is None or not all(place.is_relative_to(folder) for place in places):
        return spec is not None
    for part in rest:
        places = [one for place in places for one in place.glob(f"{part}*")]
        places = [one for one in places if one.name.partition(".")[0] == part]
        if not places:
            return False
    return True
