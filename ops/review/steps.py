"""The changes that a preview lists, one record per resource, and the policies that they violate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from infra.domain import catalog, naming
from ops.cluster import ClusterError

UNKNOWN: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine writes for a value that only the update will know."""

SECRET: Final = "[secret]"
"""What the engine writes for a value that is secret."""

_FAILED: Final = "preview failed"
"""All that `--json` has of the violations of policies; their event log has the rest (`violations`)."""


class Change(StrEnum):
    """What happens to a resource."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    IMPORT = "import"
    SAME = "same"


_CHANGES: Final[Mapping[str, Change]] = {
    "create": Change.CREATE,
    "update": Change.UPDATE,
    "delete": Change.DELETE,
    "same": Change.SAME,
    "import": Change.IMPORT,
    "replace": Change.REPLACE,
    "create-replacement": Change.REPLACE,
    "delete-replaced": Change.REPLACE,
    "import-replacement": Change.REPLACE,
}
"""By the engine's operation; others (`read`, `refresh`, ...) change nothing."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One resource before and after. A replacement, which the engine lists three times, is one step."""

    urn: str
    change: Change
    old: Mapping[str, Any] = field(default_factory=dict)
    """Its inputs before; empty if it is new."""
    new: Mapping[str, Any] = field(default_factory=dict)
    """Its inputs afterwards; empty if it is deleted."""
    reasons: tuple[str, ...] = ()
    """Properties that cause a replacement."""
    was_protected: bool = False
    is_protected: bool = False
    retained: bool = False
    """Whether the resource itself stays when the stack drops it."""

    @property
    def kind(self) -> str:
        return self.urn.split("::")[2].rsplit("$", 1)[-1]

    @property
    def name(self) -> str:
        """Its name in the program."""
        return self.urn.split("::", 3)[3]

    @property
    def ancestors(self) -> tuple[str, ...]:
        """Types of the components that it is part of, outermost first."""
        return tuple(self.urn.split("::")[2].split("$")[:-1])


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A diagnostic of the preview: a violation of a policy, a warning or an error."""

    fails: bool
    text: str
    policy: str = ""
    """The rule that is violated; empty: a warning or an error of the program, a provider or the engine."""
    resource: str = ""
    """The resource that violates it, by its name in the program; empty: the stack as a whole."""


@dataclass(frozen=True, kw_only=True)
class Preview:
    stack: str
    region: str
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    node_pools: str = ""
    """The stack file's pools as JSON; empty: not known."""


_UNIDENTIFIED: Final = Finding(
    fails=True,
    text="cluster: its address changes in the update that records its identity, so that every object is replaced;"
    " the address must stay in that update; deploy with the former kubeconfig first",
)


def _loses_its_cluster(step: Step) -> bool:
    """Whether the Kubernetes provider is replaced because the state does not identify its cluster yet."""
    replaced = step.kind == "pulumi:providers:kubernetes" and step.change is Change.REPLACE
    return replaced and "clusterIdentifier" not in step.old and "clusterIdentifier" in step.new


def parse(
    text: str, place: str, stack: str, violations: Sequence[Finding] | None = None
) -> Preview:
    """Read what `pulumi preview --json` wrote. Raises ClusterError for other text, or for another stack.

    `violations`: of policies, from the preview's event log; None: the preview was made without one.
    """
    try:
        found = json.loads(text)
        listed = found.get("steps") or []
        steps = _steps(listed)
        findings = [
            *_findings(found.get("diagnostics") or [], violations),
            *(_UNIDENTIFIED for one in steps if _loses_its_cluster(one)),
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ClusterError(
            f"{place}: not a preview; expected what `pulumi preview --stack {stack} --json` writes"
        ) from None
    if not steps and not findings:
        raise ClusterError(
            f"{place}: has no steps; expected a whole preview; run the preview again"
        )
    others = {step.urn.split("::")[0].removeprefix("urn:pulumi:") for step in steps} - {stack}
    if others:
        raise ClusterError(
            f"{place}: is a preview of {', '.join(sorted(others))}; expected {stack}; pass its --stack"
        )
    config = found.get("config") or {}
    return Preview(
        stack=stack,
        region=_region(config),
        steps=tuple(steps),
        findings=tuple(findings),
        node_pools=str(config.get(f"{naming.PROJECT}:nodePools") or ""),
    )


def _region(config: Mapping[str, Any]) -> str:
    """Return the region of the stack; the default one outside AWS."""
    try:
        aws = json.loads(config.get(f"{naming.PROJECT}:aws") or "{}")
        return str(aws.get("region") or catalog.DEFAULT_REGION)
    except (ValueError, TypeError, AttributeError):
        return catalog.DEFAULT_REGION


def _steps(listed: list[dict[str, Any]]) -> list[Step]:
    """Return one step per resource and kind of change, in the order of the preview."""
    found: dict[str, Step] = {}
    for one in listed:
        change = _CHANGES.get(one["op"])
        if change is None:
            continue
        step = _step(one, change)
        known = found.get(step.urn)
        found[step.urn] = _merged(known, step) if known else step
    return list(found.values())


def _step(one: Mapping[str, Any], change: Change) -> Step:
    old, new = one.get("oldState") or {}, one.get("newState") or {}
    return Step(
        urn=one["urn"],
        change=change,
        old=old.get("inputs") or {},
        new={} if change is Change.DELETE else new.get("inputs") or {},
        reasons=tuple(one.get("replaceReasons") or ()),
        was_protected=bool(old.get("protect")),
        is_protected=bool(new.get("protect")),
        retained=bool(old.get("retainOnDelete")),
    )


def _merged(a: Step, b: Step) -> Step:
    """Return both steps of one resource as one: a deletion and a creation are a replacement."""
    change = a.change if a.change is b.change else Change.REPLACE
    return Step(
        urn=a.urn,
        change=change,
        old=a.old or b.old,
        new=a.new or b.new,
        reasons=a.reasons or b.reasons,
        was_protected=a.was_protected or b.was_protected,
        is_protected=a.is_protected or b.is_protected,
        retained=a.retained or b.retained,
    )


def _findings(
    diagnostics: list[dict[str, Any]], violations: Sequence[Finding] | None
) -> list[Finding]:
    """Return violations, warnings and errors, without those of the engine's progress."""
    found = list(violations or ())
    explained = any(one.fails for one in found)
    for one in diagnostics:
        if one.get("severity") in ("error", "warning"):
            text = _text(one, explained=explained, logged=violations is not None)
            if text:
                found.append(Finding(fails=one["severity"] == "error", text=text))
    return found


def _text(one: Mapping[str, Any], *, explained: bool, logged: bool) -> str:
    """Return a diagnostic as one line; empty for a failure that the violations explain."""
    name = str(one.get("urn") or "").rsplit("::", 1)[-1]
    message = " ".join(str(one.get("message") or "").split()).removeprefix("error: ")
    if message == _FAILED:
        if explained:
            return ""
        if not logged:
            message = (
                "a policy is violated, or the program failed; `--events` reads which, and `pulumi preview`"
                " without --json shows it"
            )
    return f"{name}: {message}" if name else message


_MANDATORY: Final = "mandatory"
_STACK: Final = "pulumi:pulumi:Stack"
_COLORS: Final = re.compile(r"<\{%.*?%\}>")


def parse_violations(text: str, place: str) -> tuple[Finding, ...]:
    """Return the violations of an event log, those that fail first. Raises ClusterError for other text."""
    try:
        found = list(_violations(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ClusterError(
            f"{place}: not an event log; expected what `PULUMI_DEBUG_COMMANDS=true pulumi preview --event-log"
            " FILE` writes; make the preview again"
        ) from None
    return tuple(sorted(found, key=lambda one: (not one.fails, one.policy, one.resource)))


def _violations(text: str) -> Iterator[Finding]:
    seen: set[Finding] = set()
    for line in text.splitlines():
        event = json.loads(line).get("policyEvent") if line.strip() else None
        if event is None:
            continue
        found = _finding(event)
        # A rule may be evaluated for each step of a replacement.
        if found not in seen:
            seen.add(found)
            yield found


def _finding(event: Mapping[str, Any]) -> Finding:
    urn = str(event.get("resourceUrn") or "")
    whole = not urn or urn.split("::")[2] == _STACK
    # The rule's description, then the violation.
    description, _, violation = _COLORS.sub("", str(event["message"])).strip().partition("\n")
    return Finding(
        fails=event.get("enforcementLevel") == _MANDATORY,
        text=" ".join((violation or description).split()),
        policy=str(event["policyName"]),
        resource="" if whole else urn.split("::", 3)[3],
    )
