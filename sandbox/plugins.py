"""Install provider plugins: Kubernetes' from the toolchain; for previews, stand-ins of AWS' and EKS'."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.toolchain import Toolchain
from sandbox.toolchain.tools import (
    AWS_PLUGIN_VERSION,
    EKS_PLUGIN_VERSION,
    KUBERNETES_PLUGIN_VERSION,
)

KUBERNETES_PLUGIN_ENV = "SANDBOX_KUBERNETES_PLUGIN"
"""Version of the Kubernetes plugin, for the language host: the SDK asks for that of its own release."""


@dataclass(frozen=True)
class Plugin:
    """A provider plugin, by the version of its SDK."""

    package: str
    version: str

    def binary(self, state: paths.State) -> Path:
        """Return the executable in the sandbox's PULUMI_HOME, where the engine looks for it."""
        folder = f"resource-{self.package}-v{self.version}"
        return pulumi_home(state) / "plugins" / folder / f"pulumi-resource-{self.package}"


CLOUD = (
    Plugin("aws", AWS_PLUGIN_VERSION),
    Plugin("eks", EKS_PLUGIN_VERSION),
)
"""Installed for previews only: a sandbox has no AWS resources."""


def install_kubernetes(state: paths.State, tools: Toolchain) -> None:
    binary = Plugin("kubernetes", KUBERNETES_PLUGIN_VERSION).binary(state)
    write_launcher(binary, "sandbox.kubernetes_plugin", str(tools.binaries[binary.name]))


def install_stand_ins(state: paths.State) -> None:
    for plugin in CLOUD:
        write_launcher(plugin.binary(state), "sandbox.aws_preview", plugin.package)


def pulumi_home(state: paths.State) -> Path:
    return state.home / "pulumi-home"


def symlink(target: Path, link: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def write_launcher(path: Path, module: str, *arguments: str) -> None:
    """Write an executable that runs a module with this checkout's Python."""
    text = (
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(paths.PROJECT))} exec {shlex.quote(sys.executable)}"
        f' -m {shlex.join([module, *arguments])} "$@"\n'
    )
    if path.exists() and path.read_bytes() == text.encode():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.chmod(0o755)
    partial.rename(path)
