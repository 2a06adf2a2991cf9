"""`trainyard init`: a run file for the caller's team, and a script that it runs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

import yaml
from rich.console import Console

from infra.domain.published_record import PublishedRecord
from ops.cluster import Cluster, ClusterError
from ops.commands import Group, printer
from ops.dev.sessions import team_of
from ops.submission import record

_EXAMPLE: Final = Path(__file__).parent / "example" / "train.py"
_NAME_MAX: Final = 30
_IMAGE: Final = "trainer"
"""Taken where the stack has an image of this name."""


def add(commands: Group) -> None:
    command = commands.add(
        "init",
        _init,
        "write a run file for your team into the current folder",
        (
            "init               # run.yaml, which runs train.py of this folder",
            "init --script      # and train.py, which survives the loss of its node",
        ),
    )
    command.add_argument(
        "file", type=Path, nargs="?", default=Path("run.yaml"), metavar="FILE", help="run.yaml"
    )
    command.add_argument(
        "--script", action="store_true", help=f"write {_EXAMPLE.name} beside it, too"
    )


def _init(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    from ops.submission import render

    team = team_of(args)
    published = record.read_record(cluster, team)
    file: Path = args.file.resolve()
    source = file.parent.relative_to(render.root_of(file)).as_posix()
    texts = {file: run_file(published, team, file.parent.name, source)}
    if args.script:
        texts[file.with_name(_EXAMPLE.name)] = _EXAMPLE.read_text(encoding="utf-8")
    for path in texts:
        if path.exists():
            raise ClusterError(f"{path}: exists; must be a new file; name another, or delete it")
    show = printer(console)
    for path, text in texts.items():
        _write(path, text)
        show(f"{path}: written")
    show(f"next: trainyard run submit {args.file} --watch")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror}; name another file") from None


def run_file(published: PublishedRecord, team: str, folder: str, source: str) -> str:
    """Return a run file whose values the stack accepts. `folder`: what the run is named after."""
    images = sorted(published.images, key=lambda name: (name != _IMAGE, name))
    if not images:
        raise ClusterError("images: the stack names none; ask a platform engineer to add one")
    platform = published.platform
    pools = ", ".join(
        f"{pool.name} ({'/'.join(pool.gpu_models)})" for pool in platform.gpu_pools(team)
    )
    return f"""\
# All keys: docs/reference/run-file.md. Submit it with trainyard run submit.
name: {_plain(_name(folder))}
version: 1               # a higher one is a run of its own
team: {_plain(team)}
image: {_plain(images[0])}  # one of the stack's: {", ".join(images)}
nodes: 1
gpusPerNode: 1           # of the pools {pools}
maxHours: 1              # it saves and ends then
program:
  launcher: torchrun
  source: {_plain(source)}       # folder that is packed with the run
  command: [{_EXAMPLE.name}, "1000"]
"""


def _name(folder: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", folder.lower()).lstrip("-0123456789")
    return words[:_NAME_MAX].strip("-") or "my-run"


def _plain(text: str) -> str:
    """Return a text as YAML, quoted where it would not be a text."""
    return yaml.safe_dump([text], width=10_000).removeprefix("- ").rstrip()
