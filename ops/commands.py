"""The command tree: groups of commands, and the options that they share."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from rich.console import Console

from ops import metrics
from ops.cluster import Cluster, ClusterError

PROGRAM: Final = "trainyard"

Run = Callable[[argparse.Namespace, Cluster, Console], int]
"""A command on a cluster: returns its exit code."""
OfflineRun = Callable[[argparse.Namespace, Console], int]
"""A command without a cluster, or one that connects by itself."""


class Group:
    """The commands below one word of the command line: `trainyard`, `trainyard run`."""

    def __init__(self, parser: argparse.ArgumentParser, path: str = PROGRAM) -> None:
        self._path = path
        self._commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def group(self, name: str, text: str, examples: Sequence[str] = ()) -> Group:
        """Add a group. `text`: its line of help; `examples`: command lines without `trainyard`."""
        return Group(self._parser(name, text, examples, []), f"{self._path} {name}")

    def add(
        self, name: str, run: Run, text: str, examples: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """Add a command on a cluster, with --kubeconfig, --context and --team."""
        command = self._parser(name, text, examples, [_cluster_options()])
        command.set_defaults(run=run, offline=None)
        return command

    def add_offline(
        self, name: str, run: OfflineRun, text: str, examples: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """Add a command that needs no cluster; it has only the options that the caller adds."""
        command = self._parser(name, text, examples, [])
        command.set_defaults(offline=run)
        return command

    def _parser(
        self,
        name: str,
        text: str,
        examples: Sequence[str],
        parents: list[argparse.ArgumentParser],
    ) -> argparse.ArgumentParser:
        return self._commands.add_parser(
            name,
            prog=f"{self._path} {name}",
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=epilog(examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=parents,
        )


def epilog(examples: Sequence[str]) -> str | None:
    """Return the examples at the end of a help text; None without any."""
    lines = [f"  {PROGRAM} {example}" for example in examples]
    return "\n".join(["examples:", *lines]) if lines else None


def _cluster_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    add_cluster(options)
    return options


def add_cluster(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig; default as kubectl"
    )
    options.add_argument("--context", metavar="NAME", help="its context; default the current one")
    options.add_argument("--team", metavar="TEAM", help="limit the command to one team")


def add_timeout(parser: argparse.ArgumentParser, default: float, what: str) -> None:
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=default,
        metavar="SECONDS",
        help=f"{what}; default {default:g}",
    )


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """Add --prometheus; empty: the cluster's own, through the API server."""
    parser.add_argument(
        "--prometheus",
        type=_url,
        default=os.environ.get(metrics.PROMETHEUS_ENV, ""),
        metavar="URL",
        help=f"Prometheus to query; default ${metrics.PROMETHEUS_ENV}, else the cluster's own",
    )


def _url(text: str) -> str:
    split = urlsplit(text)
    # Other users of the machine can read arguments, but not the environment.
    if "@" in split.netloc and text != os.environ.get(metrics.PROMETHEUS_ENV):
        raise argparse.ArgumentTypeError(
            f"got a URL with a password; pass it in {metrics.PROMETHEUS_ENV}, which other users cannot read"
        )
    if text and split.scheme not in ("http", "https"):
        shown = urlunsplit(split._replace(netloc=split.netloc.rpartition("@")[2]))
        raise argparse.ArgumentTypeError(f"got {shown}; expected http://HOST:PORT or https://HOST")
    return text


def _seconds(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; expected 0 or more seconds")
    return value


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add --yes, which answers `confirm`."""
    parser.add_argument("--yes", action="store_true", help="do not ask before something is deleted")


def confirm(args: argparse.Namespace, act: str) -> None:
    """Ask whether to do something that cannot be undone. `act`: `OBJECT: what to do`.

    Raises ClusterError for another answer than yes, and without --yes where there is no terminal.
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise ClusterError(f"{act}: not confirmed: stdin is not a terminal; pass --yes")
    answer = ""
    with contextlib.suppress(EOFError):
        answer = input(f"{act}? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise ClusterError(f"{act}: not confirmed; nothing was changed; answer y, or pass --yes")


def printer(console: Console) -> Callable[[str], None]:
    """Return a function that prints a line as it is: no markup, colors or added line breaks."""

    def show(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    return show
