"""Configuration issues and the error that reports them, for what runs in the trainer's image.

infra/sections/errors.py has the same two classes for stack and run files: neither side may import the other, and
a test holds them equal. See docs/adr/01-stacks-and-configuration.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, order=True)
class ConfigIssue:
    """One issue of a configuration, one line of text: `PATH: problem; valid; action`."""

    path: str
    """Key path such as `data.sources[0].weight`, or the name of the file."""
    problem: str
    """What is wrong."""
    valid: str
    """What is valid."""
    action: str
    """What to do."""
    code: str = "invalid"
    """Kind of the issue in kebab case, such as `unknown-key`; stable, unlike the text."""

    def __str__(self) -> str:
        line = f"{self.path}: {self.problem}; {self.valid}; {self.action}"
        return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)


def issue(
    path: str, problem: str, valid: str, action: str = "correct it", code: str = "invalid"
) -> ConfigIssue:
    return ConfigIssue(path=path, problem=problem, valid=valid, action=action, code=code)


class ConfigError(Exception):
    """A configuration that cannot be used; its text has one line per issue."""

    def __init__(self, issues: Sequence[ConfigIssue | str]) -> None:
        self.issues = tuple(issues)
        self.lines = tuple(map(str, issues))
        super().__init__("\n".join(self.lines))


def within(place: str, issues: Iterable[ConfigIssue]) -> list[ConfigIssue]:
    """Return the same issues with their paths in a file of this name."""
    return [replace(one, path=f"{place}: {one.path}") for one in issues]


def config_error(
    path: str, problem: str, valid: str, action: str = "correct it", code: str = "invalid"
) -> ConfigError:
    return ConfigError([issue(path, problem, valid, action, code)])
