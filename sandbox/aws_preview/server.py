"""The part of the resource provider protocol that previews use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, TypeVar

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import (
    plugin_pb2,
    provider_pb2,
    provider_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)

from sandbox.aws_preview import eks_cluster, lookups
from sandbox.aws_preview.eks_cluster import PlannedResource
from sandbox.aws_preview.lookups import NotSupportedError, remedy
from sandbox.aws_preview.properties import UNKNOWN, decode, encode, reveal
from sandbox.pulumi_plugin import CHANNEL_OPTIONS
from sandbox.toolchain.tools import (
    AWS_PLUGIN_VERSION,
    EKS_PLUGIN_VERSION,
    KUBERNETES_PLUGIN_VERSION,
)

F = TypeVar("F", bound=Callable[..., Any])

_COMPUTED_WITHIN: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        "aws:eks/cluster:Cluster": (
            ("vpcConfig", "clusterSecurityGroupId"),
            ("vpcConfig", "vpcId"),
        )
    }
)
"""Fields that AWS sets inside an input: unknown in a preview, not empty."""


def _reports_errors(method: F) -> F:
    """Map exceptions of a call to its gRPC status: one line, never a traceback."""

    @wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except NotSupportedError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except grpc.RpcError as error:
            # The engine has rejected a child of the component and reported the cause.
            context.abort(error.code(), str(error.details()))

    return call  # type: ignore[return-value]


class PreviewProvider(provider_pb2_grpc.ResourceProviderServicer):
    package = ""
    version = ""

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=self.version)

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def _refused(self, what: str) -> NotSupportedError:
        return NotSupportedError(
            f"the preview stand-in of {self.package} {what}; {remedy(self.package, self.version)}"
        )


class AwsProvider(PreviewProvider):
    """Resources of AWS: not validated, previewed from their inputs, never created."""

    package = "aws"
    version = AWS_PLUGIN_VERSION

    def __init__(self) -> None:
        self._place = lookups.Place(lookups.NO_ACCOUNT, "")

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        failures = []
        if not _region(reveal(decode(request.news))):
            reason = "missing; set aws:region, AWS_REGION or the provider's region"
            failures.append(provider_pb2.CheckFailure(property="region", reason=reason))
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        config = reveal(decode(request.args))
        # Lists come as JSON in a provider's configuration.
        allowed = config.get("allowedAccountIds") or "[]"
        accounts = json.loads(allowed) if isinstance(allowed, str) else []
        account = accounts[0] if accounts else lookups.NO_ACCOUNT
        self._place = lookups.Place(account, _region(config))
        return super().Configure(request, context)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    @_reports_errors
    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        if not request.preview:
            raise self._refused(f"cannot create {_describe(request.urn)}: it only previews")
        planned = planned_outputs(_type(request.urn), decode(request.properties))
        return provider_pb2.CreateResponse(properties=encode(planned))

    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        """A resource read by id is assumed to exist."""
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties)

    @_reports_errors
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        found = lookups.answer(request.tok, reveal(decode(request.args)), self._place)
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(encode(found))  # a keyword of Python
        return response


_VERSIONS: Final = {"aws": AWS_PLUGIN_VERSION, "kubernetes": KUBERNETES_PLUGIN_VERSION}


class Monitor:
    """Client of the resource monitor of one `Construct` request."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._channel = grpc.insecure_channel(request.monitorEndpoint, options=CHANNEL_OPTIONS)
        self._monitor = resource_pb2_grpc.ResourceMonitorStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def register_component(self, inputs: Mapping[str, Any]) -> str:
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


class EksProvider(PreviewProvider):
    """The component eks.Cluster with the resources that the official one registers."""

    package = "eks"
    version = EKS_PLUGIN_VERSION

    @_reports_errors
    def Construct(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.type != eks_cluster.TYPE:
            raise self._refused(f"does not know the component {request.type} ({request.name})")
        if not request.dryRun:
            raise self._refused(f"cannot create {request.type} {request.name}: it only previews")
        inputs = decode(request.inputs)
        children = eks_cluster.children(request.name, inputs)
        with closing(Monitor(request)) as monitor:
            component = monitor.register_component(inputs)
            urns = monitor.register_children(component, children)
            outputs = eks_cluster.outputs(urns)
            monitor.register_outputs(component, outputs)
        dependencies = {
            name: provider_pb2.ConstructResponse.PropertyDependencies(urns=[urns["cluster"]])
            for name in outputs
        }
        return provider_pb2.ConstructResponse(
            urn=component, state=encode(outputs), stateDependencies=dependencies
        )


def planned_outputs(token: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs as outputs; SDKs treat missing outputs as unknown in a preview."""
    outputs = dict(inputs)
    for outer, inner in _COMPUTED_WITHIN.get(token, ()):
        if isinstance(block := outputs.get(outer), dict):
            outputs[outer] = {inner: UNKNOWN, **block}
    return outputs


def _region(config: Mapping[str, Any]) -> str:
    named = config.get("region") or os.environ.get("AWS_REGION")
    return str(named or os.environ.get("AWS_DEFAULT_REGION") or "")


def _type(urn: str) -> str:
    return str(urn.split("::")[2].rpartition("$")[2])


def _describe(urn: str) -> str:
    return f"{_type(urn)} {urn.rpartition('::')[2]}"
