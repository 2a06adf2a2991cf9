"""Add-ons of a stack as Pulumi resources; each depends on those that it needs only."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pulumi

from infra.addons import mirror
from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS
from infra.domain import naming
from infra.kubernetes import helm, system_nodes
from infra.kubernetes.helm import Chart, merged, nested
from infra.kubernetes.objects import Manifest, metadata
from infra.kubernetes.resources import KubernetesObject


def place(plan: Installable, *, selected: bool) -> Installable:
    """Return the plan with controllers that tolerate the taint of system nodes.

    `selected`: they also select these nodes, which not every existing cluster has.
    """
    values = plan.values
    for one in ADD_ONS[plan.add_on].placed:
        if _at(values, one.tolerations.rpartition(".")[0]).get("enabled") is False:
            continue
        values = merged(values, nested(one.tolerations, list(system_nodes.TOLERATIONS)))
        if selected:
            values = merged(values, nested(one.node_selector, dict(system_nodes.LABELS)))
    objects = tuple(map(_selecting, plan.objects)) if selected else plan.objects
    return replace(plan, values=values, objects=objects)


def _at(values: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the mapping at a dotted path, empty where there is none."""
    for key in path.split(".") if path else ():
        values = values.get(key, {})
    return values


def _selecting(manifest: Manifest) -> Manifest:
    """Return a Deployment whose pods select system nodes; other objects as they are."""
    if manifest["kind"] != "Deployment":
        return manifest
    pods = {"template": {"spec": {"nodeSelector": dict(system_nodes.LABELS)}}}
    return merged(manifest, {"spec": pods})


KUBE_SYSTEM: Final = "kube-system"
"""Exists in every cluster."""


def in_order(plans: Iterable[Installable]) -> tuple[Installable, ...]:
    """Return the plans, each after those that it needs. Raises graphlib.CycleError."""
    by_name = {plan.add_on: plan for plan in plans}
    graph = {
        name: [
            other
            for other in (*plan.needs, *ADD_ONS[name].needs, *ADD_ONS[name].objects_need)
            if other in by_name
        ]
        for name, plan in by_name.items()
    }
    return tuple(by_name[name] for name in graphlib.TopologicalSorter(graph).static_order())


def namespace(name: str, plans: Sequence[Installable]) -> Manifest:
    """Return the namespace that these share. Raises ValueError if their labels conflict."""
    labels = naming.object_labels("operators")
    for plan in plans:
        for key, value in plan.namespace_labels.items():
            if labels.setdefault(key, value) != value:
                raise ValueError(
                    f"namespace {name}: {plan.add_on} requires {key}={value}, not {labels[key]}"
                )
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(name, labels=labels)}


@dataclass(frozen=True, kw_only=True)
class AddOnsArgs:
    """What to install, in any order."""

    plans: tuple[Installable, ...]
    charts: Mapping[str, Chart]
    """Their charts, by name of the add-on."""
    mirror: str = ""
    """Registry of all images; empty: upstream registries."""


class AddOns(pulumi.ComponentResource):
    """Namespaces, releases and objects of the add-ons that the stack installs."""

    def __init__(self, name: str, args: AddOnsArgs, opts: pulumi.ResourceOptions) -> None:
        # The type token predates the class name.
        super().__init__(naming.infra_type("Operators"), name, None, opts)
        self._name = name
        self._charts = args.charts
        self._mirror = args.mirror
        self._namespaces = self._make_namespaces(args.plans)
        made: dict[str, list[pulumi.Resource]] = {}
        for plan in in_order(args.plans):
            add_on = ADD_ONS[plan.add_on]
            needs, late = (
                [resource for other in names for resource in made.get(other, ())]
                for names in ((*plan.needs, *add_on.needs), add_on.objects_need)
            )
            made[plan.add_on] = self._install(plan, needs, late)
        self.register_outputs({"installed": list(made)})

    def _make_namespaces(self, plans: Sequence[Installable]) -> dict[str, KubernetesObject]:
        sharing: dict[str, list[Installable]] = {}
        for plan in plans:
            sharing.setdefault(ADD_ONS[plan.add_on].namespace, []).append(plan)
        sharing.pop(KUBE_SYSTEM, None)
        return {
            where: KubernetesObject(
                f"{self._name}-{_owner(where)}-namespace",
                namespace(where, those),
                self._own(()),
            )
            for where, those in sharing.items()
        }

    def _install(
        self, plan: Installable, needs: list[pulumi.Resource], late: list[pulumi.Resource]
    ) -> list[pulumi.Resource]:
        """Create an add-on's resources, which depend on `needs`; what follows its release also on `late`."""
        add_on = ADD_ONS[plan.add_on]
        if add_on.namespace in self._namespaces:
            needs = [*needs, self._namespaces[add_on.namespace]]
        before = [self._object(plan, manifest, needs) for manifest in plan.before]
        needs = [*needs, *before]
        made: list[pulumi.Resource] = [*before]
        if add_on.chart:
            release = helm.release(
                f"{self._name}-{plan.add_on}",
                self._charts[plan.add_on],
                release_name=add_on.release_name,
                namespace=add_on.namespace,
                values=plan.values,
                opts=self._own(needs),
            )
            made, needs = [*made, release], [release]
        needs = [*needs, *late]
        return [*made, *(self._object(plan, manifest, needs) for manifest in plan.objects)]

    def _object(
        self, plan: Installable, manifest: Manifest, needs: Sequence[pulumi.Resource]
    ) -> KubernetesObject:
        what = f"{manifest['kind']}-{manifest['metadata']['name']}".lower()
        return KubernetesObject(
            f"{self._name}-{plan.add_on}-{what}",
            mirror.manifest(manifest, self._mirror),
            self._own(needs),
        )

    def _own(self, needs: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needs))


def _owner(where: str) -> str:
    """Return the add-on that names a namespace's resource, whether it is installed or not."""
    return next(name for name, add_on in ADD_ONS.items() if add_on.namespace == where)
