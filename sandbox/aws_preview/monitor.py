"""Register the resources of a component with the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import grpc
from pulumi.runtime.proto import resource_pb2, resource_pb2_grpc

from sandbox.aws_preview.child import PlannedResource
from sandbox.aws_preview.properties import encode
from sandbox.pulumi_plugin import CHANNEL_OPTIONS
from sandbox.toolchain.tools import AWS_PLUGIN_VERSION, KUBERNETES_PLUGIN_VERSION

_VERSIONS = {"aws": AWS_PLUGIN_VERSION, "kubernetes": KUBERNETES_PLUGIN_VERSION}


class Monitor:
    """Client of the resource monitor of one `Construct` request."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._channel = grpc.insecure_channel(request.monitorEndpoint, options=CHANNEL_OPTIONS)
        self._monitor = resource_pb2_grpc.ResourceMonitorStub(self._channel)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    def register_component(self, inputs: Mapping[str, Any]) -> str:
        """Register the component; return its URN."""
        request = self._request
        return self._register(
            type=request.type,
            name=request.name,
            parent=request.parent,
            object=encode(inputs),
            dependencies=request.dependencies,
            providers=request.providers,
            aliases=request.aliases,
        )

    def register_children(
        self, component: str, children: Iterable[PlannedResource]
    ) -> dict[str, str]:
        """Register resources in order; return their URNs by key."""
        needed = {urn for deps in self._request.inputDependencies.values() for urn in deps.urns}
        urns: dict[str, str] = {}
        for child in children:
            after = [urns[key] for key in child.after if key in urns]
            urns[child.key] = self._register(
                type=child.type,
                name=child.name,
                custom=child.custom,
                parent=urns.get(child.parent, component),
                object=encode(child.inputs),
                dependencies=[*(needed if child.custom else ()), *after],
                provider=self._request.providers.get(child.package, ""),
                version=_VERSIONS.get(child.package, ""),
            )
        return urns

    def register_outputs(self, component: str, outputs: Mapping[str, Any]) -> None:
        """Register the component's outputs."""
        self._monitor.RegisterResourceOutputs(
            resource_pb2.RegisterResourceOutputsRequest(urn=component, outputs=encode(outputs))
        )

    def _register(self, **fields: Any) -> str:
        """Register a resource; it inherits protection from the component, as in every SDK."""
        request = resource_pb2.RegisterResourceRequest(
            protect=self._request.protect,
            retainOnDelete=self._request.retainOnDelete,
            acceptSecrets=True,
            acceptResources=True,
            supportsPartialValues=True,
            **fields,
        )
        return str(self._monitor.RegisterResource(request).urn)
