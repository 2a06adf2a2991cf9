"""The environment in which plain `pulumi`, `kubectl` and `aws` work on the sandbox.

`install` puts the commands into `State.bin` and the chosen Kubernetes provider into the sandbox's own
`PULUMI_HOME`; `variables` is what `python -m sandbox env` prints.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sandbox import paths
from sandbox.ports import LOOPBACK
from sandbox.services import Setting
from sandbox.toolchain import official
from sandbox.toolchain.tools import KUBERNETES_PLUGIN_VERSION

PROVIDER_ENV = "SANDBOX_PROVIDER"
PROVIDERS = ("official", "standin")
PLUGIN = "pulumi-resource-kubernetes"
PLUGIN_FOLDER = f"resource-kubernetes-v{KUBERNETES_PLUGIN_VERSION}"
INSTALL_TIMEOUT_S = 300.0

Say = Callable[[str], None]


class SetupError(Exception):
    """The environment cannot be set up as asked; the text is one line for the user."""


def variables(setting: Setting) -> dict[str, str]:
    """What to export; values are complete, PATH included."""
    state = setting.state
    own = [str(state.bin), str(Path(sys.prefix) / "bin")]
    rest = [p for p in os.environ.get("PATH", "").split(os.pathsep) if p and p not in own]
    named = {"SANDBOX_HOME": str(state.home)} if "SANDBOX_HOME" in os.environ else {}
    return named | {
        "PATH": os.pathsep.join([*own, *rest]),
        "KUBECONFIG": str(state.kubeconfig),
        "PULUMI_HOME": str(_pulumi_home(state)),
        # Without metadata files beside the state: they are not written atomically, and one that a
        # killed engine has left empty makes the state unreadable ("failed to load checkpoint: EOF").
        "PULUMI_BACKEND_URL": f"file://{state.backend}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(_passphrase(state)),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_EXPERIMENTAL_NEO_TIPS": "false",
        # A rerun after a killed `up` finds objects that are not in the state yet, and repairs fields
        # that somebody has edited by hand (the node controller edits taints). Both plugins know these.
        "PULUMI_K8S_UPSERT_EXISTING_OBJECTS": "true",
        "PULUMI_K8S_ENABLE_PATCH_FORCE": "true",
        "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{setting.ports['s3']}",
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
        "AWS_REGION": "us-east-1",
    }


def shell_lines(values: dict[str, str]) -> str:
    """`export NAME=VALUE` lines for `eval`."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items())


def install(setting: Setting, say: Say) -> str:
    """Make commands, passphrase and provider ready; returns the provider: official or standin.

    Raises:
        SetupError: SANDBOX_PROVIDER has another value, or the official plugin cannot be had.
    """
    state = setting.state
    wanted = os.environ.get(PROVIDER_ENV, "")
    if wanted and wanted not in PROVIDERS:
        raise SetupError(
            f"{PROVIDER_ENV}: got {wanted!r}; allowed {' or '.join(PROVIDERS)}; unset it to let"
            " the official plugin win where there is one"
        )
    state.backend.mkdir(parents=True, exist_ok=True)
    _passphrase(state)
    _install_commands(setting)
    chosen = _choose_provider(setting, wanted, say)
    (state.home / "provider").write_text(chosen + "\n")
    return chosen


def _pulumi_home(state: paths.State) -> Path:
    return state.home / "pulumi-home"


def _passphrase(state: paths.State) -> Path:
    """The passphrase that encrypts secrets in the state: made once, mode 0600."""
    path = state.home / "passphrase"
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(secrets.token_urlsafe(32))
    return path


def _install_commands(setting: Setting) -> None:
    """kubectl and pulumi; beside a pulumi that has no Python language host of its own, ours."""
    folder = setting.state.bin
    folder.mkdir(parents=True, exist_ok=True)
    _link(setting.tools.binaries["kubectl"], folder / "kubectl")
    pulumi = setting.tools.binaries["pulumi"]
    beside = pulumi.resolve().parent / "pulumi-language-python"
    if beside.exists():
        for name in ("pulumi", "pulumi-language-python", "pulumi-language-python-exec"):
            if (beside.parent / name).exists():
                _link(beside.parent / name, folder / name)
        return
    # The engine looks for language hosts beside its own file, so it must really lie here: a hard link.
    _same_file(pulumi, folder / "pulumi")
    _script(folder / "pulumi-language-python", "sandbox.language_host")


def _choose_provider(setting: Setting, wanted: str, say: Say) -> str:
    """The official plugin where there is one, unless the stand-in is asked for."""
    home = _pulumi_home(setting.state)
    place = home / "plugins" / PLUGIN_FOLDER
    if wanted != "standin":
        if shutil.which(PLUGIN, path=_foreign_path(setting.state)):
            shutil.rmtree(place, ignore_errors=True)
            return "official"
        if found := _official_plugin(setting, place, wanted, say):
            if found != place:
                shutil.rmtree(place, ignore_errors=True)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(found)
            return "official"
        if wanted == "official":
            raise SetupError(
                f"{PROVIDER_ENV}=official: no {PLUGIN} on PATH or among Pulumi's plugins, and its"
                " download site cannot be reached; install it or unset the variable"
            )
    if place.is_symlink():
        place.unlink()
    place.mkdir(parents=True, exist_ok=True)
    _script(place / PLUGIN, "sandbox.provider")
    return "standin"


def _official_plugin(setting: Setting, place: Path, wanted: str, say: Say) -> Path | None:
    """Folder of the official plugin: the user's own, one installed here before, or a new download."""
    of_user = Path(os.environ.get("PULUMI_HOME", Path.home() / ".pulumi")) / "plugins"
    candidate = of_user / PLUGIN_FOLDER
    if (candidate / PLUGIN).exists() and candidate.resolve() != place.resolve():
        return candidate
    if (place / PLUGIN).exists() and not _is_ours(place / PLUGIN):
        return place
    tried = (setting.state.home / "provider").exists()
    if (tried and wanted != "official") or not official.reachable():
        if not tried:
            say("The official Kubernetes plugin cannot be downloaded here: the stand-in is used.")
        return None
    say("downloading the official Kubernetes plugin")
    shutil.rmtree(place, ignore_errors=True)
    command = [setting.binary("pulumi"), "plugin", "install", "resource", "kubernetes"]
    env = os.environ | {"PULUMI_HOME": str(_pulumi_home(setting.state))}
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [*command, KUBERNETES_PLUGIN_VERSION],
            env=env,
            capture_output=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    return place if (place / PLUGIN).exists() else None


def _foreign_path(state: paths.State) -> str:
    """PATH without the sandbox's own folder."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(f for f in folders if f and Path(f) != state.bin)


def _is_ours(path: Path) -> bool:
    return path.stat().st_size < 4096 and "sandbox.provider" in path.read_text(errors="replace")


def _script(path: Path, module: str) -> None:
    """An executable that runs one of our modules with this checkout's Python."""
    text = (
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(paths.PROJECT))} exec {shlex.quote(sys.executable)}"
        f' -m {module} "$@"\n'
    )
    if path.exists() and path.read_text() == text:
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.chmod(0o755)
    partial.rename(path)


def _link(target: Path, link: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _same_file(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
