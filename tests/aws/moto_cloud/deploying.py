"""Run a program under Pulumi's mocks and record the resources that it creates."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pulumi
from pulumi.runtime import mocks, settings
from pulumi.runtime.stack import run_pulumi_func

import tests.aws.moto_cloud.services  # noqa: F401  registers every service
from tests.aws.moto_cloud import missing
from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud, account
from tests.aws.moto_cloud.registry import ANSWERS, CREATORS

DEFAULT_TAGS: Final = {"trainyard.dev/stack": "test"}
"""Default tags of the provider that a program gets."""

_ECHOED: Final = ("pulumi:", "trainyard:", "kubernetes:")
_STACK: Final = "pulumi:pulumi:Stack"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Created:
    """A resource that the program registered."""

    type: str
    name: str
    id: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    parent: str
    """Name of the parent; empty for the stack."""
    depends_on: frozenset[str]
    """Names of the resources that must exist before, through inputs or `depends_on`."""
    protect: bool
    retain_on_delete: bool
    ignore_changes: frozenset[str]
    """Inputs that later updates leave as they are."""
    replace_on_changes: frozenset[str]
    """Inputs whose change replaces the resource, besides those that the provider knows."""
    delete_before_replace: bool
    delete_timeout: str
    """How long its deletion may take, such as `45m`; empty for the provider's default."""
    provider: str
    """Name of the explicit provider; empty where the program left the default one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployed:
    """Resources and result of a program."""

    created: tuple[Created, ...]
    """In the order of creation."""
    result: Any
    """What the program returned, its outputs resolved."""
    cloud: Cloud

    def all(self, type_: str) -> list[Created]:
        """Every resource of a type token."""
        return [one for one in self.created if one.type == type_]

    def one(self, type_: str, name: str | None = None) -> Created:
        """The only resource of a type, or the one of this name."""
        found = [one for one in self.all(type_) if name in (None, one.name)]
        if len(found) != 1:
            have = sorted(f"{one.type} {one.name}" for one in self.created)
            raise LookupError(f"{len(found)} resources are {type_} {name or ''}; there are {have}")
        return found[0]


class _Monitor(mocks.MockMonitor, mocks.Mocks):
    """Creates what the program registers, one resource at a time, and keeps the first error."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(self)
        self.cloud = cloud
        self.created: dict[str, Created] = {}
        self.error: BaseException | None = None
        self._turn = threading.Lock()
        self._request: Any = None

    def RegisterResource(self, request: Any) -> Any:
        return self._guarded(super().RegisterResource, request)

    def Invoke(self, request: Any) -> Any:
        return self._guarded(super().Invoke, request)

    def _guarded(self, handle: Callable[[Any], Any], request: Any) -> Any:
        # Moto is not safe for threads, and Pulumi registers on many.
        with self._turn:
            self._request = request
            try:
                return handle(request)
            except BaseException as error:
                self.error = self.error or error
                raise

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        request = self._request
        inputs = _plain(args.inputs)
        if args.typ.startswith(("aws:", "eks:")):
            inputs["tagsAll"] = self._default_tags(request) | inputs.get("tags", {})
        id_, added = self._create(args.typ, args.name, inputs)
        outputs = inputs | added
        urn = self.make_urn(request.parent, request.type, request.name)
        self.created[urn] = Created(
            type=args.typ,
            name=args.name,
            id=id_,
            inputs=inputs,
            outputs=outputs,
            parent=_name(request.parent),
            depends_on=frozenset(_name(urn) for urn in request.dependencies),
            protect=request.protect,
            retain_on_delete=request.retainOnDelete,
            ignore_changes=frozenset(request.ignoreChanges),
            replace_on_changes=frozenset(request.replaceOnChanges),
            delete_before_replace=request.deleteBeforeReplace,
            delete_timeout=request.customTimeouts.delete,
            provider=", ".join(sorted(_name(ref) for ref in _providers(request))),
        )
        return (id_ if request.custom else None), outputs

    def _create(self, type_: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if type_.startswith(_ECHOED):
            return f"{name}-id", {}
        try:
            if type_ in CREATORS:
                return CREATORS[type_](inputs | {"__name": name, "__monitor": self}, self.cloud)
            if type_ in missing.MISSING:
                return missing.echo(type_, name, inputs | {"__monitor": self}, self.cloud)
        except Exception as error:
            error.add_note(f"while creating {type_} {name}")
            raise
        raise NotImplementedError(
            f"{type_} ({name}) is new to the tests' cloud: create it in moto with @creates in "
            "tests/aws/moto_cloud, or list it in missing.py if moto lacks it"
        )

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        if args.token not in ANSWERS:
            raise NotImplementedError(
                f"{args.token} is new to the tests' cloud: answer it with @answers"
            )
        return ANSWERS[args.token](_plain(args.args), self.cloud), []

    def _default_tags(self, request: Any) -> dict[str, str]:
        for reference in _providers(request):
            provider = self.created[reference.rpartition("::")[0]]
            if provider.type == "pulumi:providers:aws":
                return dict(_parsed(provider.inputs.get("defaultTags", {})).get("tags", {}))
        raise LookupError(
            f"{request.type} {request.name} has no explicit AWS provider: pass it the options of "
            "its component, or parent=self"
        )


def _plain(value: Any) -> Any:
    """Without Pulumi's wrappers around secrets, whole numbers as int."""
    if isinstance(value, Mapping):
        if set(value) == {"4dabf18193072939515e22adb298388d", "value"}:
            return _plain(value["value"])
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _parsed(value: Any) -> Any:
    """Providers get nested inputs as JSON text."""
    return json.loads(value) if isinstance(value, str) else value


def _providers(request: Any) -> list[str]:
    return [request.provider] if request.provider else list(request.providers.values())


def _name(urn: str) -> str:
    parts = urn.split("::", 3)
    if len(parts) < 4 or parts[2] == _STACK:
        return ""
    return parts[3].partition("::")[0]


def deploy(program: Callable[[pulumi.ResourceOptions], Any], cloud: Cloud) -> Deployed:
    """Runs `program(opts)` to its end; `opts` carry an explicit AWS and Kubernetes provider.

    Raises what the cloud or the program raised first.
    """
    monitor = _Monitor(cloud)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # The first error is raised; what failed because of it has nothing to add.
    loop.set_exception_handler(lambda _loop, _context: None)
    # An earlier program's stack would lend this one its name.
    settings.set_root_resource(None)  # type: ignore[arg-type]
    mocks.set_mocks(monitor, "trainyard", "test", preview=False, monitor=monitor)
    pulumi.runtime.set_all_config({})
    result: list[Any] = []

    def run() -> None:
        returned = _outputs(program(pulumi.ResourceOptions(providers=_explicit_providers())))
        pulumi.Output.from_input(returned).apply(result.append)

    try:
        loop.run_until_complete(run_pulumi_func(run))
    except BaseException as error:
        if monitor.error:
            raise monitor.error from None
        raise error
    finally:
        _abandon(loop)
    if monitor.error:
        raise monitor.error
    return Deployed(
        created=tuple(monitor.created.values()),
        result=_plain(result[0]) if result else None,
        cloud=cloud,
    )


def deployed_once(program: Callable[[pulumi.ResourceOptions], Any]) -> Iterator[Deployed]:
    """One deployment in an account of its own, for all tests of a module."""
    return deployed_on(lambda _cloud, opts: program(opts))


def deployed_on(
    program: Callable[[Cloud, pulumi.ResourceOptions], Any],
) -> Iterator[Deployed]:
    """The same of a program that also prepares the account; the tests only read it."""
    with account() as cloud:
        yield deploy(lambda opts: program(cloud, opts), cloud)


def _abandon(loop: asyncio.AbstractEventLoop) -> None:
    """Silently cancel the remaining tasks of a failed program."""
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    # The next program, perhaps a rendering, would wait for it.
    settings.SETTINGS.outputs.clear()
    asyncio.set_event_loop(None)
    loop.close()


def _explicit_providers() -> list[pulumi.ProviderResource]:
    import pulumi_aws
    import pulumi_kubernetes

    tags = pulumi_aws.ProviderDefaultTagsArgs(tags=DEFAULT_TAGS)
    return [
        pulumi_aws.Provider("aws", region=REGION, allowed_account_ids=[ACCOUNT], default_tags=tags),
        pulumi_kubernetes.Provider("cluster"),
    ]


def _outputs(value: Any) -> Any:
    """Records and components as mappings, so that Pulumi finds the outputs in them."""
    if isinstance(value, pulumi.Resource):
        return {k: _outputs(v) for k, v in vars(value).items() if not k.startswith("_")}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _outputs(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _outputs(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_outputs(item) for item in value]
    return value
