"""Helm charts as Pulumi releases."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_kubernetes as k8s
from pulumi.runtime.proto.resource_pb2_grpc import ResourceMonitorStub
from pulumi.runtime.settings import get_monitor

_TYPE: Final = "kubernetes:helm.sh/v3:Release"
_PENDING: Final = "another operation (install/upgrade/rollback) is in progress"
_EXISTS: Final = "cannot re-use a name that is still in use"
"""Helm's errors for a release whose last operation was killed, and for one that the stack's state lacks."""

ARCHIVES: Final = ".charts"
"""Folder of charts' archives in the project, which git ignores."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    chart: str
    """OCI reference; a name where there is a `repository`."""
    version: str
    repository: str = ""
    """URL of a chart index."""
    image_values: Mapping[str, Any] = field(default_factory=dict)
    """Values that set its images' registry to a mirror; empty: the chart's registries."""
    digest: str = ""
    """Digest of its archive, sha256:..., which is then installed from a file; empty: from its registry."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the stack file, which win over all others."""

    @property
    def archive(self) -> str:
        """Path of the archive of a chart with a digest, relative to the project: the same on every machine."""
        name = self.chart.rpartition("/")[2]
        digest = self.digest.removeprefix("sha256:")
        return f"./{ARCHIVES}/{name}-{self.version}-{digest[:12]}.tgz"


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return values merged with more, recursively by mapping as Helm does."""
    found = dict(values)
    for key, value in more.items():
        below = found.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        found[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return found


def nested(path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def _has_null(values: Any) -> bool:
    if isinstance(values, Mapping):
        return any(_has_null(value) for value in values.values())
    return values is None


def release(
    name: str,
    chart: Chart,
    *,
    release_name: str,
    namespace: str,
    values: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
    skip_crds: bool | None = None,
) -> k8s.helm.v3.Release:
    """Create an atomic release with a timeout of ten minutes."""
    complete = merged(merged(values, chart.image_values), chart.values)
    index = chart.repository and not chart.digest
    errors = _Errors(name, release_name, namespace, opts.parent)
    made = k8s.helm.v3.Release(
        name,
        name=release_name,
        chart=chart.archive if chart.digest else chart.chart,
        version=chart.version,
        namespace=namespace,
        repository_opts=k8s.helm.v3.RepositoryOptsArgs(repo=chart.repository) if index else None,
        values=complete,
        # Without it the plugin drops null, which removes a chart's default.
        allow_null_values=True if _has_null(complete) else None,
        skip_crds=skip_crds,
        atomic=True,
        timeout=600,
        opts=pulumi.ResourceOptions.merge(opts, errors.hooks()),
    )
    # After a refresh: an update with the values of the killed one changes nothing, and would not fail.
    made.status.apply(errors.check_status)
    return made


@dataclass(frozen=True)
class _Errors:
    """Show the command that helps after some errors of Helm (docs/recover.md#a-failed-update)."""

    resource: str
    release: str
    namespace: str
    parent: pulumi.Resource | None

    def hooks(self) -> pulumi.ResourceOptions:
        """Return options that handle errors of the engine's operations."""
        if not isinstance(get_monitor(), ResourceMonitorStub):
            return pulumi.ResourceOptions()  # Pulumi's mocks have no hooks.
        hook = pulumi.ErrorHook(f"{self.resource}-errors", self._handle)
        return pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(on_error=[hook]))

    def check_status(self, status: k8s.helm.v3.outputs.ReleaseStatus | None) -> None:
        """Raise pulumi.RunError if Helm's last operation was killed. None: in a preview, or with mocks."""
        if status and status.status.startswith("pending-"):
            raise pulumi.RunError(self._pending())

    async def _handle(self, args: pulumi.ErrorHookArgs) -> bool:
        """Handle a failed operation; return False: do not retry it."""
        if _PENDING in args.errors[0]:
            pulumi.log.error(self._pending())
        elif _EXISTS in args.errors[0]:
            pulumi.log.error(
                f"{self.namespace}/{self.release}: the cluster has this release, the stack's state does not; run"
                " the command for its status with this cluster's kubeconfig, then pulumi up --refresh:"
                f" helm status {self._place}; pending-install: helm uninstall {self._place} --wait;"
                f" deployed: {await self._adoption()}"
            )
        return False

    def _pending(self) -> str:
        return (
            f"{self.namespace}/{self.release}: an update was killed while Helm changed this release; undo it with"
            f" this cluster's kubeconfig, then run pulumi up --refresh: helm rollback {self._place} --wait"
        )

    @property
    def _place(self) -> str:
        return f"{self.release} --namespace {self.namespace}"

    async def _adoption(self) -> str:
        provider = self.parent and self.parent.get_provider(_TYPE)
        links = {"parent": self.parent, "provider": provider}
        urns = [f"--{link}={link}={await one.urn.future()}" for link, one in links.items() if one]
        identity = (_TYPE, self.resource, f"{self.namespace}/{self.release}")
        flags = ("--protect=false", "--generate-code=false")
        return shlex.join(["pulumi", "import", *identity, *urns, *flags])
