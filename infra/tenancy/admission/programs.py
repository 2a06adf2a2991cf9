"""What a run with a program of its own brings must not get around what the platform sets.

A run's ConfigMaps hold the code that its pods start, so they are immutable. Of two variables with one name the
kubelet takes the last, so a second one would silently replace the platform's. Operators add variables of their own
to the pods of a run, whose template was checked before.
"""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, labels_of, policy, resources, text, texts
from infra.kubernetes.controller_accounts import OWNERS, is_one_of
from infra.kubernetes.objects import Manifest

_PRELOADS: Final = ("LD_PRELOAD", "LD_AUDIT")
"""Variables that load code into every process of a container, the launcher included."""


def protect_environment() -> Manifest:
    """Forbid variables that replace others of their container, or load code before the launcher."""
    each = "variables.containers.all(cs, cs.all(c, c.?env.orValue([])"
    return policy(
        "environment",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=(
                    f"{is_one_of(OWNERS)} || {each}.all(v, c.env.exists_one(w, w.name == v.name))))"
                ),
                message=(
                    "a variable of a container is set twice; each must be set once, because the last one "
                    "wins; remove one"
                ),
            ),
            Rule(
                holds=f"{each}.all(v, !(v.name in {texts(_PRELOADS)}))))",
                message=(
                    f"{' and '.join(_PRELOADS)} are not allowed, because they load code into the run's "
                    "launcher; load the library in the program"
                ),
            ),
        ],
    )


def run_files_immutable() -> Manifest:
    """Require that ConfigMaps of a run, which hold its record and its code, are immutable."""
    return policy(
        "run-files",
        matches=[resources("", "configmaps")],
        rules=[
            Rule(
                holds=(
                    f"!({text(naming.RUN_ID)} in {labels_of('object')}) || "
                    "object.?immutable.orValue(false)"
                ),
                message=(
                    "a run's ConfigMap must be immutable, because its pods start what it contains; "
                    "set immutable: true"
                ),
            )
        ],
    )
