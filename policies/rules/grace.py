"""Grace budget: each layer of a shutdown leaves enough time for the one inside it.

checkpoint deadline < torchrun's shutdown timeout < the pod's grace period <= the notice of spot
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from .model import (
    UNKNOWN,
    Config,
    Resource,
    ResourceRule,
    Schema,
    StackRule,
    Violation,
    dig,
    elements,
)
from .names import (
    LAUNCH_MODULE,
    NOTICE_SECONDS_ENV,
    QUEUE_LABEL,
    RUN_RECORD_FILE,
    SPOT_NOTICE_S,
    SPOT_TAINT,
)
from .stack import Stack
from .taints import Taint, taint_schema, tolerating
from .workloads import DAEMON_SET, Container, PodTemplate, pod_templates, split_words

_POD_DEFAULT_GRACE_S: Final = 30
_TORCHRUN_DEFAULT_S: Final = 30
"""torchrun's default time from SIGTERM to SIGKILL of its workers."""
_TIMEOUT_ENV: Final = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_TIMEOUT_FLAGS: Final = ("--shutdown-timeout", "--shutdown_timeout")
_LAUNCHERS: Final = frozenset({"torchrun", "torch.distributed.run"})
_RAISE: Final = "raise terminationGracePeriodSeconds or lower --shutdown-timeout"
_OWN_LAUNCHER_END_S: Final = 5
"""Seconds that the project's launcher keeps of its notice for its own end."""


def grace_period(template: PodTemplate) -> int | None:
    """Return the pod's grace period in seconds; None if unknown."""
    value = template.spec.get("terminationGracePeriodSeconds")
    if value is None and template.complete:
        return _POD_DEFAULT_GRACE_S
    return value if isinstance(value, int) else None


def shutdown_timeout(container: Container) -> int | None:
    """Return the launcher's shutdown timeout in seconds; None if unknown or no launcher."""
    words = split_words(container.command)
    if LAUNCH_MODULE in words:
        notice = container.env.get(NOTICE_SECONDS_ENV)
        seconds = _seconds(notice) if isinstance(notice, str) else None
        return None if seconds is None else seconds - _OWN_LAUNCHER_END_S
    if not any(PurePosixPath(word).name in _LAUNCHERS for word in words):
        return None
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in _TIMEOUT_FLAGS:
            return _seconds(value if equals else "".join(words[index + 1 : index + 2]))
    given = container.env.get(_TIMEOUT_ENV, str(_TORCHRUN_DEFAULT_S))
    return _seconds(given) if isinstance(given, str) else None


def _seconds(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _check_shutdown_timeout(template: PodTemplate, grace: int) -> Iterator[Violation]:
    for container in template.containers:
        timeout = shutdown_timeout(container)
        if timeout is None:
            continue
        spent = timeout + container.pre_stop_sleep_s
        if spent >= grace:
            sleep = f" after a preStop of {container.pre_stop_sleep_s} s"
            yield Violation(
                path=f"{container.path}.command",
                got=f"a shutdown timeout of {timeout} s{sleep if spent > timeout else ''}",
                expected=f"less than the pod's grace period of {grace} s",
                remedy=_RAISE,
            )


def _check_notice(template: PodTemplate, grace: int, notice: int) -> Iterator[Violation]:
    if grace > notice:
        yield Violation(
            path=f"{template.path}.terminationGracePeriodSeconds",
            got=f"{grace} s on a pod that may run on spot",
            expected=f"at most {notice} s, the notice before a spot reclaim",
            remedy="make saves faster, or keep the run off spot",
        )


def _check_pod(resource: Resource, config: Config) -> Iterable[Violation]:
    spot = Taint.parse(config["spotTaint"])
    for template in pod_templates(resource):
        grace = grace_period(template)
        if grace is None:
            continue
        yield from _check_shutdown_timeout(template, grace)
        if tolerating(template.spec, spot) is not None and template.kind != DAEMON_SET:
            yield from _check_notice(template, grace, config["noticeSeconds"])


def run_record(template: PodTemplate, stack: Stack) -> Mapping[str, Any]:
    """Return the run record that the pod mounts; empty if none can be read."""
    for volume in elements(template.spec.get("volumes")):
        name = dig(volume, "configMap", "name")
        text = stack.config_map(template.namespace, str(name)).get(RUN_RECORD_FILE)
        if isinstance(text, str):
            try:
                record = json.loads(text)
            except json.JSONDecodeError:
                return {}
            return record if isinstance(record, Mapping) else {}
    return {}


def _check_deadline(template: PodTemplate, record: Mapping[str, Any]) -> Iterator[Violation]:
    deadline = dig(record, "grace", "checkpoint_deadline_s")
    for container in template.containers:
        timeout = shutdown_timeout(container)
        if timeout is None or not isinstance(deadline, (int, float)) or deadline < timeout:
            continue
        yield Violation(
            path=f"{container.path}.command",
            got=f"a shutdown timeout of {timeout} s",
            expected=f"more than the run's checkpoint deadline of {deadline} s",
            remedy="raise --shutdown-timeout: otherwise the launcher kills the ranks during a save",
        )


def _may_land_on_spot(
    template: PodTemplate, record: Mapping[str, Any], stack: Stack, spot: Taint
) -> bool:
    if "spot" in elements(record.get("capacity_types")):
        return True
    queue = dig(template.owner_labels, QUEUE_LABEL)
    if not queue or queue is UNKNOWN:
        return False
    flavors = stack.flavors_of_queue(template.namespace, queue)
    return bool(flavors & stack.spot_flavors(spot))


def _check_stack(resources: Sequence[Resource], config: Config) -> Iterable[Violation]:
    stack, spot = Stack(resources), Taint.parse(config["spotTaint"])
    for resource in resources:
        for template in pod_templates(resource):
            record = run_record(template, stack)
            found = [*_check_deadline(template, record)]
            grace = grace_period(template)
            # A pod that tolerates the taint itself was checked before its creation.
            checked = tolerating(template.spec, spot) is not None
            if grace and not checked and _may_land_on_spot(template, record, stack, spot):
                found += _check_notice(template, grace, config["noticeSeconds"])
            for violation in found:
                yield violation.at(resource.urn)


_SCHEMA: Final[Schema] = {
    "spotTaint": taint_schema(SPOT_TAINT, "Taint of nodes that can be reclaimed"),
    "noticeSeconds": {
        "type": "integer",
        "minimum": 1,
        "default": SPOT_NOTICE_S,
        "description": "Seconds from the notice of a reclaim to the node's termination",
    },
}

GRACE_BUDGET: Final = ResourceRule(
    name="grace-budget",
    description="torchrun's shutdown timeout fits the pod's grace period, which fits the spot notice.",
    check=_check_pod,
    schema=_SCHEMA,
)

GRACE_OF_RUNS: Final = StackRule(
    name="grace-of-runs",
    description="A run's checkpoint deadline and grace period fit every capacity of its queue.",
    check=_check_stack,
    schema=_SCHEMA,
)
