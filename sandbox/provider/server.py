"""The resource provider protocol: decode requests, map errors to gRPC statuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from sandbox.provider import VERSION, config, yaml_decoding
from sandbox.provider.autonaming import Mode
from sandbox.provider.cluster import Cluster
from sandbox.provider.diff import Change, Difference
from sandbox.provider.engine_log import EngineLog
from sandbox.provider.errors import ProviderError
from sandbox.provider.objects import REPLACE_UNREADY
from sandbox.provider.properties import decode, encode
from sandbox.provider.session import Session, Written

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = {
    (Change.ADD, False): provider_pb2.PropertyDiff.ADD,
    (Change.ADD, True): provider_pb2.PropertyDiff.ADD_REPLACE,
    (Change.DELETE, False): provider_pb2.PropertyDiff.DELETE,
    (Change.DELETE, True): provider_pb2.PropertyDiff.DELETE_REPLACE,
    (Change.UPDATE, False): provider_pb2.PropertyDiff.UPDATE,
    (Change.UPDATE, True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
}
_OFFICIAL = "use the official plugin (SANDBOX_PROVIDER=official)"
_UNSUPPORTED_FUNCTIONS = {
    "kubernetes:helm:template": f"the provider stand-in does not render Helm charts; {_OFFICIAL}",
    "kubernetes:kustomize:directory": f"the provider stand-in does not run kustomize; {_OFFICIAL}",
}


class _Unready(Exception):
    """The object exists but is not ready: the error carries its state."""

    def __init__(self, written: Written) -> None:
        self.written = written
        super().__init__()


def _reports_errors(method: F) -> F:
    """Map exceptions of a call to its gRPC status: one line, never a traceback."""

    @wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except ProviderError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except _Unready as error:
            _abort_unready(context, error.written)
        except Exception as error:
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            line = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else "?"
            context.abort(
                grpc.StatusCode.INTERNAL,
                f"provider stand-in: {type(error).__name__}: {error} ({line})",
            )

    return call  # type: ignore[return-value]


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Serves one engine, configured once."""

    def __init__(self, engine: str) -> None:
        self._log = EngineLog(engine)
        self._session: Session | None = None
        self._cluster: Cluster | None = None

    def stop(self) -> None:
        """Stop all waits."""
        if self._session is not None:
            self._session.cancel()

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, supports_autonaming_configuration=True
        )

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def Attach(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._log = EngineLog(request.address)
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.stop()
        return empty_pb2.Empty()

    @_reports_errors
    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        news = decode(request.news)
        return provider_pb2.CheckResponse(
            inputs=request.news,
            failures=[
                provider_pb2.CheckFailure(property=name, reason=reason)
                for name, reason in config.failures(news)
            ],
        )

    @_reports_errors
    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        olds = decode(request.old_inputs if request.HasField("old_inputs") else request.olds)
        news = decode(request.news)
        changed = sorted(key for key in {*olds, *news} if olds.get(key) != news.get(key))
        replaces = config.replacing_properties(olds, news)
        some = (
            provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        )
        return provider_pb2.DiffResponse(changes=some, diffs=changed, replaces=replaces)

    @_reports_errors
    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        settings = config.settings(decode(request.args), dict(request.variables))
        self._cluster = Cluster(settings)
        self._session = Session(self._cluster, self._log)
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, supports_autonaming_configuration=True
        )

    @_reports_errors
    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        name = request.urn.rpartition("::")[2]
        try:
            inputs = self._configured().check(
                request.urn,
                name,
                decode(request.olds),
                decode(request.news),
                request.randomSeed,
                _proposal(request),
            )
        except ProviderError as error:
            failure = provider_pb2.CheckFailure(reason=str(error))
            return provider_pb2.CheckResponse(inputs=request.news, failures=[failure])
        return provider_pb2.CheckResponse(inputs=encode(inputs))

    @_reports_errors
    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        # Most resources of an update: reading both sides takes a hundred times as long as comparing them unread.
        if request.old_inputs == request.news and not _is_replaced_while_unready(request.news):
            return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)
        found = self._configured().diff(
            request.urn,
            decode(request.olds),
            decode(request.old_inputs),
            decode(request.news),
            list(request.ignoreChanges),
        )
        changed = found.differences or found.replaces
        replaces = [item.property_path for item in found.differences if item.replaces]
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME
            if changed
            else provider_pb2.DiffResponse.DIFF_NONE,
            replaces=[*replaces, *found.replaces],
            diffs=_top_level(found.differences),
            deleteBeforeReplace=found.delete_first,
            hasDetailedDiff=True,
            detailedDiff={
                item.property_path: provider_pb2.PropertyDiff(
                    kind=_KINDS[item.change, item.replaces], inputDiff=True
                )
                for item in found.differences
            },
        )

    @_reports_errors
    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        written = self._configured().create(
            request.urn, decode(request.properties), request.timeout, dry_run=request.preview
        )
        if written.unready:
            raise _Unready(written)
        return provider_pb2.CreateResponse(
            id=written.identifier, properties=encode(written.properties)
        )

    @_reports_errors
    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        written = self._configured().read(
            request.urn, request.id, decode(request.properties), decode(request.inputs)
        )
        if written is None:
            return provider_pb2.ReadResponse()
        if written.unready:
            raise _Unready(written)
        return provider_pb2.ReadResponse(
            id=written.identifier,
            properties=encode(written.properties),
            inputs=encode(written.inputs or {}),
        )

    @_reports_errors
    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        written = self._configured().update(
            request.urn,
            decode(request.olds),
            decode(request.news),
            list(request.ignoreChanges),
            request.timeout,
            dry_run=request.preview,
        )
        if written.unready:
            raise _Unready(written)
        return provider_pb2.UpdateResponse(properties=encode(written.properties))

    @_reports_errors
    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._configured().delete(
            request.urn, request.id, decode(request.properties), request.timeout
        )
        return empty_pb2.Empty()

    @_reports_errors
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.tok != "kubernetes:yaml:decode":
            raise ProviderError(
                _UNSUPPORTED_FUNCTIONS.get(request.tok)
                or f"the provider stand-in has no function {request.tok}; {_OFFICIAL}"
            )
        arguments = decode(request.args)
        self._configured()
        assert self._cluster is not None
        namespace = str(arguments.get("defaultNamespace") or "")
        found = yaml_decoding.decode(str(arguments.get("text", "")), namespace, self._cluster)
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(encode({"result": found}))  # a keyword of Python
        return response

    @_reports_errors
    def Construct(self, request: Any, context: grpc.ServicerContext) -> Any:
        raise ProviderError(f"the provider stand-in has no component {request.type}; {_OFFICIAL}")

    @_reports_errors
    def Call(self, request: Any, context: grpc.ServicerContext) -> Any:
        raise ProviderError(f"the provider stand-in has no method {request.tok}; {_OFFICIAL}")

    @_reports_errors
    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        raise ProviderError(
            "the provider stand-in has no schema, so no code can be generated; "
            "import with --generate-code=false"
        )

    def GetMapping(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.GetMappingResponse()

    def GetMappings(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.GetMappingsResponse()

    def _configured(self) -> Session:
        if self._session is None:
            raise ProviderError("the engine has not configured this provider")
        return self._session


def _is_replaced_while_unready(inputs: struct_pb2.Struct) -> bool:
    """Whether the object is compared with the live one, too: an annotation asks for it."""
    path = ("metadata", "annotations", REPLACE_UNREADY)
    for key in path[:-1]:
        inputs = inputs.fields[key].struct_value if key in inputs.fields else struct_pb2.Struct()
    return path[-1] in inputs.fields


def _proposal(request: Any) -> tuple[Mode, str] | None:
    if not request.HasField("autonaming"):
        return None
    return Mode(request.autonaming.mode), request.autonaming.proposed_name


def _top_level(differences: Sequence[Difference]) -> list[str]:
    return sorted({str(item.path[0]) for item in differences})


def _abort_unready(context: grpc.ServicerContext, written: Written) -> None:
    """Fail a call whose object exists: the engine keeps its state and tries again next time."""
    name = f"{written.properties.get('kind', '')} {written.identifier}"
    message = f"{name} was written, but is not ready: {written.unready[0]}"
    inputs: Mapping[str, Any] | None = written.inputs
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=written.identifier,
            properties=encode(written.properties),
            reasons=[message, *written.unready[1:]],
            inputs=encode(inputs) if inputs is not None else None,
        )
    )
    code = grpc.StatusCode.UNKNOWN
    status = status_pb2.Status(code=code.value[0], message=message, details=[detail])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)
