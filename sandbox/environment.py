"""Environment variables and commands with which `pulumi`, `kubectl` and `aws` use the sandbox.

`install` puts the commands into `State.bin` and the Kubernetes provider into the sandbox's `PULUMI_HOME`;
`variables` is what `python -m sandbox env` prints. `install_for_previews` and `preview_variables` do the
same for previews of other stacks, which need no cluster.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox import monitoring, paths
from sandbox.ports import LOOPBACK
from sandbox.services import ClusterSettings
from sandbox.toolchain import Toolchain
from sandbox.toolchain.tools import (
    AWS_PLUGIN_VERSION,
    EKS_PLUGIN_VERSION,
    KUBERNETES_PLUGIN_VERSION,
)

_SANDBOX_KEY = "sandbox"
_NO_CLUSTER = "{apiVersion: v1, kind: Config, clusters: [], contexts: [], users: []}\n"


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


def variables(settings: ClusterSettings) -> dict[str, str]:
    """Return the variables to export; PATH is complete."""
    state = settings.state
    prometheus = monitoring.prometheus_url(state)
    return _engine_variables(state, state.backend) | {
        **({"PROMETHEUS_URL": prometheus} if prometheus else {}),
        "KUBECONFIG": str(state.kubeconfig),
        # Fields that others have edited are repaired (the node controller edits taints). Objects that exist and
        # are not in the state, as after a killed `up`, are adopted in any case.
        "PULUMI_K8S_ENABLE_PATCH_FORCE": "true",
        "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{settings.ports['s3']}",
        "AWS_ACCESS_KEY_ID": _SANDBOX_KEY,
        "AWS_SECRET_ACCESS_KEY": _SANDBOX_KEY,
        "AWS_REGION": "us-east-1",
    }


def preview_variables(state: paths.State) -> dict[str, str]:
    """Return the whole environment for previews of another stack.

    Its backend is separate from the local stack's. The kubeconfig is empty: no cluster of this machine is the
    stack's.
    """
    apart = preview_folder(state)
    nowhere = {"KUBECONFIG": str(apart / "no-cluster.yaml")}
    return os.environ | nowhere | _engine_variables(state, apart / "state")


def preview_folder(state: paths.State) -> Path:
    return state.home / "preview"


def shell_lines(values: dict[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items())


def install(settings: ClusterSettings) -> None:
    state = settings.state
    state.backend.mkdir(parents=True, exist_ok=True)
    _passphrase(state)
    _install_commands(state, settings.tools)


def install_for_previews(state: paths.State, tools: Toolchain) -> None:
    """Install pulumi, passphrase, the Kubernetes plugin and the stand-ins of the clouds' plugins."""
    (preview_folder(state) / "state").mkdir(parents=True, exist_ok=True)
    (preview_folder(state) / "no-cluster.yaml").write_text(_NO_CLUSTER)
    state.home.chmod(0o700)
    _passphrase(state)
    _install_commands(state, tools)
    install_stand_ins(state)


def _engine_variables(state: paths.State, backend: Path) -> dict[str, str]:
    own = [str(state.bin), str(Path(sys.prefix) / "bin")]
    rest = [p for p in os.environ.get("PATH", "").split(os.pathsep) if p and p not in own]
    named = {"SANDBOX_HOME": str(state.home)} if "SANDBOX_HOME" in os.environ else {}
    return named | {
        "PATH": os.pathsep.join([*own, *rest]),
        "PULUMI_HOME": str(pulumi_home(state)),
        # No metadata files next to the state: they are not written atomically, and an empty one left
        # by a killed engine makes the state unreadable ("failed to load checkpoint: EOF").
        "PULUMI_BACKEND_URL": f"file://{backend}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(_passphrase(state)),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        KUBERNETES_PLUGIN_ENV: KUBERNETES_PLUGIN_VERSION,
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_EXPERIMENTAL_NEO_TIPS": "false",
    }


def _passphrase(state: paths.State) -> Path:
    """Return the file of the passphrase that encrypts secrets in the state; create it with mode 0600."""
    path = state.home / "passphrase"
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(secrets.token_urlsafe(32))
    return path


def _install_commands(state: paths.State, tools: Toolchain) -> None:
    """Install kubectl, pulumi with our language host, and the Kubernetes plugin."""
    folder = state.bin
    folder.mkdir(parents=True, exist_ok=True)
    if kubectl := tools.binaries.get("kubectl"):
        symlink(kubectl, folder / "kubectl")
    # The engine looks for language hosts next to its executable, hence a hard link.
    _hard_link(tools.binaries["pulumi"], folder / "pulumi")
    write_launcher(folder / "pulumi-language-python", "sandbox.language_host")
    install_kubernetes(state, tools)


def _hard_link(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


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
