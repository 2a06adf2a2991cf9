"""Which provider plugins the engine gets: the official ones, or our stand-ins in their place.

`SANDBOX_PROVIDER` says official or standin. Unset, an official plugin wins where there is one: on PATH, among
the user's plugins, or, where the download site answers, a download. Else the stand-in is written.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.toolchain import Toolchain, official
from sandbox.toolchain.tools import (
    AWS_PLUGIN_VERSION,
    EKS_PLUGIN_VERSION,
    KUBERNETES_PLUGIN_VERSION,
)

PROVIDER_ENV = "SANDBOX_PROVIDER"
PROVIDERS = ("official", "standin")
INSTALL_TIMEOUT_S = 300.0

Report = Callable[[str], None]


class SetupError(Exception):
    """The environment cannot be set up as asked; the text is one line for the user."""


@dataclass(frozen=True)
class Plugin:
    """A provider plugin. `standin`: module and arguments of ours that answers in its place."""

    package: str
    version: str
    standin: tuple[str, ...]

    @property
    def binary(self) -> str:
        """The command that the engine starts."""
        return f"pulumi-resource-{self.package}"

    def place(self, state: paths.State) -> Path:
        """Its folder among the sandbox's plugins."""
        return pulumi_home(state) / "plugins" / self.folder

    @property
    def folder(self) -> str:
        """The name that the engine gives the folder of an installed plugin."""
        return f"resource-{self.package}-v{self.version}"


KUBERNETES = Plugin("kubernetes", KUBERNETES_PLUGIN_VERSION, ("sandbox.provider",))
CLOUD = (
    Plugin("aws", AWS_PLUGIN_VERSION, ("sandbox.aws_preview", "aws")),
    Plugin("eks", EKS_PLUGIN_VERSION, ("sandbox.aws_preview", "eks")),
)
"""Only previews get these: no sandbox has AWS resources."""


def requested_provider() -> str:
    """What `SANDBOX_PROVIDER` asks for; empty lets the official plugin win where there is one.

    Raises:
        SetupError: it has another value.
    """
    named = os.environ.get(PROVIDER_ENV, "")
    if named and named not in PROVIDERS:
        raise SetupError(
            f"{PROVIDER_ENV}: got {named!r}; allowed {' or '.join(PROVIDERS)}; unset it to let"
            " the official plugin win where there is one"
        )
    return named


def pulumi_home(state: paths.State) -> Path:
    """The sandbox's PULUMI_HOME."""
    return state.home / "pulumi-home"


def install_plugin(
    plugin: Plugin, state: paths.State, tools: Toolchain, asked: str, report: Report
) -> str:
    """Put a plugin in its place; returns which: official or standin.

    Raises:
        SetupError: the official one is asked for and cannot be had.
    """
    place = plugin.place(state)
    if asked != "standin":
        if shutil.which(plugin.binary, path=_user_path(state)):
            _remove(place)
            return "official"
        if found := _official_plugin(plugin, state, tools, asked, report):
            if found != place:
                _remove(place)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(found)
            return "official"
        if asked == "official":
            raise SetupError(
                f"{PROVIDER_ENV}=official: no {plugin.binary} on PATH or among Pulumi's plugins,"
                " and its download site cannot be reached; install it or unset the variable"
            )
    if place.is_symlink():
        place.unlink()
    place.mkdir(parents=True, exist_ok=True)
    write_launcher(place / plugin.binary, *plugin.standin)
    return "standin"


def _official_plugin(
    plugin: Plugin, state: paths.State, tools: Toolchain, asked: str, report: Report
) -> Path | None:
    """Folder of the official plugin: the user's own, one installed here before, or a new download."""
    place = plugin.place(state)
    of_user = Path(os.environ.get("PULUMI_HOME", Path.home() / ".pulumi")) / "plugins"
    candidate = of_user / plugin.folder
    if (candidate / plugin.binary).exists() and candidate.resolve() != place.resolve():
        return candidate
    installed = (place / plugin.binary).exists()
    if installed and not _is_standin(place / plugin.binary):
        return place
    # A stand-in that lies there says that the official one could not be had before.
    if (installed and asked != "official") or not _site_reachable():
        if not installed:
            report(
                f"The official {plugin.package} plugin cannot be downloaded: the stand-in is used."
            )
        return None
    report(f"downloading the official {plugin.package} plugin")
    shutil.rmtree(place, ignore_errors=True)
    command = [str(tools.binaries["pulumi"]), "plugin", "install", "resource", plugin.package]
    env = os.environ | {"PULUMI_HOME": str(pulumi_home(state))}
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [*command, plugin.version],
            env=env,
            capture_output=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    return place if (place / plugin.binary).exists() else None


@functools.cache
def _site_reachable() -> bool:
    return official.site_reachable()


def _remove(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)


def _user_path(state: paths.State) -> str:
    """PATH without the sandbox's own folder."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(f for f in folders if f and Path(f) != state.bin)


def _is_standin(path: Path) -> bool:
    return path.stat().st_size < 4096 and " -m sandbox." in path.read_text(errors="replace")


def write_launcher(path: Path, module: str, *arguments: str) -> None:
    """An executable that runs one of our modules with this checkout's Python."""
    text = (
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(paths.PROJECT))} exec {shlex.quote(sys.executable)}"
        f' -m {shlex.join([module, *arguments])} "$@"\n'
    )
    if path.exists() and path.read_text() == text:
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.chmod(0o755)
    partial.rename(path)
