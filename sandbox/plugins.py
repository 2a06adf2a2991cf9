"""Install provider plugins: Kubernetes' from the toolchain; for previews, AWS' and EKS' or their stand-ins.

`SANDBOX_PROVIDER` selects official or standin for the latter. Unset, an official plugin is preferred: from PATH,
from the user's plugins, or downloaded if the site is reachable. Otherwise the stand-in is installed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.reporting import Report
from sandbox.toolchain import Toolchain
from sandbox.toolchain.download import reachable
from sandbox.toolchain.releases import LOOK, PULUMI
from sandbox.toolchain.tools import (
    AWS_PLUGIN_VERSION,
    EKS_PLUGIN_VERSION,
    KUBERNETES_PLUGIN_VERSION,
)

KUBERNETES_PLUGIN_ENV = "SANDBOX_KUBERNETES_PLUGIN"
"""Version of the Kubernetes plugin, for the language host: the SDK asks for that of its own release."""
PROVIDER_ENV = "SANDBOX_PROVIDER"
PROVIDERS = ("official", "standin")
INSTALL_TIMEOUT_S = 300.0


class SetupError(Exception):
    """The environment cannot be set up as requested; the text is one line."""


@dataclass(frozen=True)
class Plugin:
    """A provider plugin. `standin`: module and arguments of its stand-in."""

    package: str
    version: str
    standin: tuple[str, ...]

    @property
    def binary(self) -> str:
        """Name of the executable that the engine starts."""
        return f"pulumi-resource-{self.package}"

    def place(self, state: paths.State) -> Path:
        """Folder of the plugin in the sandbox's PULUMI_HOME."""
        return pulumi_home(state) / "plugins" / self.folder

    @property
    def folder(self) -> str:
        """Name of the folder as the engine expects it."""
        return f"resource-{self.package}-v{self.version}"


CLOUD = (
    Plugin("aws", AWS_PLUGIN_VERSION, ("sandbox.aws_preview", "aws")),
    Plugin("eks", EKS_PLUGIN_VERSION, ("sandbox.aws_preview", "eks")),
)
"""Installed for previews only: a sandbox has no AWS resources."""


def install_kubernetes(state: paths.State, tools: Toolchain) -> None:
    """Put the toolchain's Kubernetes plugin where the engine finds it."""
    name = "pulumi-resource-kubernetes"
    place = pulumi_home(state) / "plugins" / f"resource-kubernetes-v{KUBERNETES_PLUGIN_VERSION}"
    place.mkdir(parents=True, exist_ok=True)
    write_launcher(place / name, "sandbox.kubernetes_plugin", str(tools.binaries[name]))


def requested_provider() -> str:
    """Return the value of `SANDBOX_PROVIDER`; empty prefers the official plugin.

    Raises:
        SetupError: the value is not official or standin.
    """
    named = os.environ.get(PROVIDER_ENV, "")
    if named and named not in PROVIDERS:
        raise SetupError(
            f"{PROVIDER_ENV}: got {named!r}; must be {' or '.join(PROVIDERS)}; unset it to"
            " prefer the official plugin"
        )
    return named


def pulumi_home(state: paths.State) -> Path:
    """Return the sandbox's PULUMI_HOME."""
    return state.home / "pulumi-home"


def install_plugin(
    plugin: Plugin, state: paths.State, tools: Toolchain, asked: str, report: Report
) -> str:
    """Install a plugin; return which: official or standin.

    Raises:
        SetupError: the official plugin is requested and not available.
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
                " and its download site is not reachable; install it or unset the variable"
            )
    if place.is_symlink():
        place.unlink()
    place.mkdir(parents=True, exist_ok=True)
    write_launcher(place / plugin.binary, *plugin.standin)
    return "standin"


def _official_plugin(
    plugin: Plugin, state: paths.State, tools: Toolchain, asked: str, report: Report
) -> Path | None:
    """Folder of the official plugin: the user's, an earlier install or a download; None without."""
    place = plugin.place(state)
    of_user = Path(os.environ.get("PULUMI_HOME", Path.home() / ".pulumi")) / "plugins"
    candidate = of_user / plugin.folder
    if (candidate / plugin.binary).exists() and candidate.resolve() != place.resolve():
        return candidate
    installed = (place / plugin.binary).exists()
    if installed and not _is_standin(place / plugin.binary):
        return place
    # An installed stand-in means that the official plugin was not available before.
    if (installed and asked != "official") or not _site_reachable():
        if not installed:
            report(f"official {plugin.package} plugin: not downloadable; using the stand-in")
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
    return bool(reachable([f"{PULUMI}/{LOOK[PULUMI]}"]))


def symlink(target: Path, link: Path) -> None:
    """Make `link` a symbolic link to `target`, unless it is."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _remove(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)


def _user_path(state: paths.State) -> str:
    """PATH without the sandbox's bin folder."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(f for f in folders if f and Path(f) != state.bin)


def _is_standin(path: Path) -> bool:
    return path.stat().st_size < 4096 and " -m sandbox." in path.read_text(errors="replace")


def write_launcher(path: Path, module: str, *arguments: str) -> None:
    """Write an executable that runs a module with this checkout's Python."""
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
