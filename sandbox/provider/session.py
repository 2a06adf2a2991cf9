"""Operations of the provider on resources, independent of the wire format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sandbox.provider import diff, helm, input_check, lifecycle, replacement_fields, state
from sandbox.provider.autonaming import Mode
from sandbox.provider.cluster import Cluster
from sandbox.provider.engine_log import EngineLog
from sandbox.provider.errors import NotInitialized, ProviderError, UnknownKind
from sandbox.provider.field_managers import manager_for
from sandbox.provider.lifecycle import Call
from sandbox.provider.objects import (
    REPLACE_UNREADY,
    SERVER_METADATA,
    WAIT_FOR,
    Object,
    annotation,
    is_annotated,
    is_patch,
    kind_of,
    kind_of_type,
    metadata,
    name_of,
    object_id,
    split_id,
    type_token,
)
from sandbox.provider.properties import reveal
from sandbox.provider.secret_values import redacted

Tree = dict[str, Any]

_NOT_INPUTS = ("status",)


@dataclass(frozen=True)
class Written:
    """A resource that was created, read or updated.

    inputs: those that the engine stores, None for those that it sent. unready: why the written object
    is not ready.
    """

    identifier: str
    properties: Tree
    inputs: Tree | None = None
    unready: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Changes of an update. `replaces`: replacements without a changed property."""

    differences: tuple[diff.Difference, ...]
    delete_first: bool
    replaces: tuple[str, ...] = ()


class Session:
    """One configured provider. Thread-safe."""

    def __init__(self, cluster: Cluster, log: EngineLog) -> None:
        self._cluster = cluster
        self._log = log

    def cancel(self) -> None:
        self._cluster.cancel()

    def check(
        self,
        urn: str,
        name: str,
        olds: Tree,
        news: Tree,
        seed: bytes,
        proposal: tuple[Mode, str] | None,
    ) -> Tree:
        """Return the inputs to register. Raises ProviderError."""
        token = type_token(urn)
        refused = input_check.unsupported_reason(token)
        if refused:
            raise ProviderError(refused)
        if token == helm.RELEASE:
            return news
        if annotation(reveal(news), WAIT_FOR):
            self._log.warning(urn, f"the provider stand-in ignores the annotation {WAIT_FOR}")
        if not self._cluster.reachable and self._cluster.settings.skip_update_unreachable and olds:
            self._log.warning(urn, f"skipped: {self._cluster.reason}")
            return olds
        return input_check.check_inputs(token, name, olds, news, seed, proposal, self._cluster)

    def diff(
        self, urn: str, stored: Tree, old_inputs: Tree, news: Tree, ignored: Sequence[str]
    ) -> Comparison:
        """Compare the new inputs with the stored state."""
        if type_token(urn) == helm.RELEASE:
            return Comparison(helm.differences(old_inputs, news), delete_first=True)
        checkpoint = state.parse(stored)
        old = state.to_manifest(old_inputs) if old_inputs else checkpoint.inputs
        new = state.to_manifest(news)
        kind = kind_of(new)
        forced = (
            replacement_fields.IDENTITY
            if is_patch(type_token(urn))
            else replacement_fields.replacement_paths(kind, new, self._cluster.settings)
        )
        differences = diff.compare(
            old,
            new,
            forced=forced,
            ignored=ignored,
            namespaced=self._cluster.discovery.namespaced(kind),
        )
        replaces = self._unready_replacement(new, checkpoint.live)
        first = bool(replaces) or diff.must_delete_first(old, new, differences)
        return Comparison(tuple(differences), first, replaces)

    def create(self, urn: str, news: Tree, seconds: float, *, dry_run: bool) -> Written:
        """Create an object, or plan it in a dry run."""
        if type_token(urn) == helm.RELEASE:
            return Written("", helm.planned(urn, news, dry_run=dry_run))
        manifest = state.to_manifest(news)
        call = self._call(urn, seconds, news)
        manager = manager_for(manifest)
        if dry_run:
            with _redacting_errors(news):
                planned = lifecycle.plan_creation(self._cluster, manifest, manager, call)
            if planned is None:
                return Written("", news)
            return self._written(planned, manifest, news, manager, identifier="")
        with _redacting_errors(news):
            live, manager = lifecycle.create(self._cluster, manifest, manager, call)
        return self._finalize(live, manifest, news, manager, call)

    def read(self, urn: str, identifier: str, stored: Tree, inputs: Tree) -> Written | None:
        """Return the live object with drift merged into its inputs; None when it was deleted."""
        if type_token(urn) == helm.RELEASE:
            raise helm.unsupported_release(identifier)
        settings = self._cluster.settings
        if not self._cluster.reachable:
            self._log.warning(urn, f"the cluster cannot be reached: {self._cluster.reason}")
            if settings.delete_unreachable:
                return None
            if settings.skip_update_unreachable:
                return Written(identifier, stored, inputs)
        checkpoint = state.parse(stored)
        known = state.to_manifest(inputs)
        target = self._target(urn, identifier, known or checkpoint.live)
        try:
            live = self._cluster.find(target)
        except UnknownKind:
            return None  # deleted with its definition
        if live is None:
            return None
        unready: list[str] = []
        if known:
            now = diff.merge_drift(known, checkpoint.live, live)
            if not is_patch(type_token(urn)):
                unready = lifecycle.unready(self._cluster, known, live)
        else:
            now = _importable(live)
        manager = manager_for(now, checkpoint.field_manager)
        written = self._written(live, now, inputs, manager, unready, identifier=identifier)
        return Written(identifier, written.properties, state.to_inputs(now, inputs), tuple(unready))

    def update(
        self,
        urn: str,
        stored: Tree,
        news: Tree,
        ignored: Sequence[str],
        seconds: float,
        *,
        dry_run: bool,
    ) -> Written:
        """Apply new inputs, or plan the update in a dry run."""
        if type_token(urn) == helm.RELEASE:
            return Written("", helm.planned(urn, news, dry_run=dry_run))
        manifest = state.to_manifest(news)
        checkpoint = state.parse(stored)
        call = self._call(urn, seconds, news)
        manager = manager_for(manifest, checkpoint.field_manager)
        with _redacting_errors(news, stored):
            if dry_run:
                planned = lifecycle.plan_update(self._cluster, manifest, manager, ignored, call)
                if planned is None:
                    return Written("", news)
                return self._written(planned, manifest, news, manager)
            live = lifecycle.update(self._cluster, manifest, manager, ignored, call)
            if manifest.get("status") not in (None, checkpoint.inputs.get("status")):
                live = lifecycle.update_status(self._cluster, manifest, manager)
        return self._finalize(live, manifest, news, manager, call)

    def delete(self, urn: str, identifier: str, stored: Tree, seconds: float) -> None:
        """Delete an object and wait until it is gone."""
        if type_token(urn) == helm.RELEASE:
            raise helm.unsupported_release(identifier)
        if not self._cluster.reachable and self._cluster.settings.delete_unreachable:
            self._log.warning(urn, f"only removed from the state: {self._cluster.reason}")
            return
        checkpoint = state.parse(stored)
        target = checkpoint.live if name_of(checkpoint.live) else self._target(urn, identifier, {})
        lifecycle.delete(
            self._cluster,
            checkpoint.inputs,
            target,
            checkpoint.field_manager,
            self._call(urn, seconds, stored),
        )

    def _call(self, urn: str, seconds: float, marked: Tree) -> Call:
        quiet = self._cluster.settings.suppress_deprecation_warnings

        def report(text: str) -> None:
            self._log.status(urn, redacted(text, marked))

        def warn(text: str) -> None:
            if not (quiet and "deprecated" in text):
                self._log.warning(urn, redacted(text, marked))

        return Call(report, warn, seconds, patch=is_patch(type_token(urn)))

    def _finalize(
        self, live: Object, manifest: Object, marked: Tree, manager: str, call: Call
    ) -> Written:
        try:
            live = lifecycle.wait_ready(self._cluster, manifest, live, call)
        except NotInitialized as error:
            return self._written(error.object, manifest, marked, manager, error.reasons)
        return self._written(live, manifest, marked, manager)

    def _written(
        self,
        live: Object,
        manifest: Object,
        marked: Tree,
        manager: str,
        unready: Sequence[str] = (),
        identifier: str | None = None,
    ) -> Written:
        properties = state.compose(
            live, manifest, marked, str(manifest.get("apiVersion", "")), manager
        )
        found = object_id(live) if identifier is None else identifier
        return Written(found, properties, None, tuple(unready))

    def _target(self, urn: str, identifier: str, known: Object) -> Object:
        """Return kind, namespace and name of the object to read."""
        token = type_token(urn)
        kind = kind_of(known) if known.get("kind") else _kind_to_import(token)
        namespace, name = split_id(identifier)
        if not namespace and self._cluster.discovery.namespaced(kind):
            namespace = self._cluster.namespace
        target: Object = {"apiVersion": kind.api_version, "kind": kind.kind}
        target["metadata"] = {"name": name, **({"namespace": namespace} if namespace else {})}
        return target

    def _unready_replacement(self, new: Object, live: Object) -> tuple[str, ...]:
        """Return the replaceUnready annotation's path if it applies to an incomplete Job."""
        wanted = is_annotated(new, REPLACE_UNREADY) and new.get("kind") == "Job"
        if not wanted or not self._cluster.reachable:
            return ()
        now = self._cluster.find(live)
        if now is None or not lifecycle.unready(self._cluster, {}, now):
            return ()
        return (f'metadata.annotations["{REPLACE_UNREADY}"]',)


@contextmanager
def _redacting_errors(*trees: Tree) -> Iterator[None]:
    """Remove secret values of property trees from errors: the API server quotes rejected values."""
    try:
        yield
    except ProviderError as error:
        raise ProviderError(redacted(str(error), *trees)) from None


def _kind_to_import(token: str) -> Any:
    try:
        return kind_of_type(token.removesuffix("Patch") if is_patch(token) else token)
    except ValueError as error:
        raise ProviderError(str(error)) from None


def _importable(live: Object) -> Object:
    """Return the inputs that would create a live object."""
    inputs = {key: value for key, value in live.items() if key not in _NOT_INPUTS}
    inputs["metadata"] = {
        key: value for key, value in metadata(live).items() if key not in SERVER_METADATA
    }
    return inputs
