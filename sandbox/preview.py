"""`python -m sandbox preview STACK`: run `pulumi preview` with the policy pack.

The local stack is previewed against its running cluster. Other stacks have no state here: they are
previewed as new, without a cluster or a cloud account; CI previews the changes to deployed ones.
"""

from __future__ import annotations

import os

from rich.console import Console

from sandbox import environment, paths, toolchain
from sandbox.engine import STACK, Engine
from sandbox.reporting import SandboxError

POLICIES = paths.PROJECT / "policies"


def preview_stack(stack: str, console: Console) -> int:
    """Preview a stack; return 0 if the preview and its policies pass, else the engine's exit code.

    Raises SandboxError: the stack has no file, or it is the local one and not up.
    """
    if not (paths.PROJECT / f"Pulumi.{stack}.yaml").exists():
        known = sorted(path.name.split(".")[1] for path in paths.PROJECT.glob("Pulumi.*.yaml"))
        raise SandboxError(
            f"stack: got {stack!r}; must be one of {', '.join(known)};"
            f" add Pulumi.{stack}.yaml for another stack"
        )
    code = _preview_local(console) if stack == STACK else _preview_new(stack, console)
    if code:
        console.print(
            f"Next: fix the errors above, then preview {stack} again; nothing was changed."
        )
    elif stack == STACK:
        console.print("Next: [bold]make up[/bold] applies the changes above, if any.")
    else:
        console.print(
            f"Next: nothing was created. A pull request previews {stack} against its account;"
            " docs/previews.md describes how to read it and how to deploy."
        )
    return code


def _preview_local(console: Console) -> int:
    from sandbox import cluster

    state = paths.state()
    if not state.kubeconfig.exists():
        raise SandboxError(
            "the local stack is not up; run `make up` first, or preview another stack"
        )
    settings = cluster.current_settings(toolchain.ensure_for_runs(console))
    engine = Engine(state, os.environ | environment.variables(settings))
    return engine.preview(POLICIES)


def _preview_new(stack: str, console: Console) -> int:
    state = paths.state()
    tools = toolchain.ensure(console, "pulumi", "pulumi-kubernetes")
    environment.install_for_previews(state, tools)
    apart = environment.preview_folder(state)
    console.print(f"  stand-ins of the plugins aws and eks; state in {apart}", highlight=False)
    engine = Engine(state, environment.preview_variables(state))
    return engine.preview_new(stack, POLICIES, apart / "project")
