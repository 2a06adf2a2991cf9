"""fluent-bit's own configuration: what it reads, what of a record it keeps, what it counts, where it sends.

In its classic format, and each value on one line. The chart renders it as a template, and fluent-bit
replaces `${NAME}` by the environment: neither must be in an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from infra.observability import series
from infra.observability.log_patterns import LOG_PATTERNS, LogPattern

HEALTH_PORT: Final = 2020
METRICS_PORT: Final = 2021
METRICS_PORT_NAME: Final = "matches"

STATE: Final = "/var/lib/fluent-bit"
"""On the node: how far each file was read, and up to 1 GiB that could not be sent yet."""

USERNAME: Final = "LOGS_USERNAME"
PASSWORD: Final = "LOGS_PASSWORD"
"""Variables of its container."""

_TAG: Final = "run.*"
_COUNTS: Final = "counts"
_PREFIX: Final = "run.var.log.containers."
"""A tag is this and the file's name, which has pod, namespace and container: the kubernetes filter's form."""

KEPT: Final = (
    *("log", "stream"),
    *("namespace", "pod", "container", "node", "team", "run_id"),
)
"""Fields of a record. Everything else that fluent-bit knows of a pod is dropped."""

COUNTED_BY: Final = ("namespace", "pod", "node", "run_id", "team")
"""Labels of the counts beside `pattern`."""


@dataclass(frozen=True, kw_only=True)
class CloudWatch:
    """A log group that exists; a stream per container is made in it."""

    region: str
    group: str


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where an HTTP service is."""

    host: str
    port: int
    path: str
    """Empty, or beginning with a slash."""
    tls: bool
    credentials: str = ""
    """A Secret with `username` and `password`; empty: none."""

    @property
    def namespace(self) -> str:
        """Of a service in this cluster, SERVICE.NAMESPACE.svc; empty: it is elsewhere."""
        inside = re.fullmatch(r"[^.]+\.([^.]+)\.svc(\.cluster\.local)?", self.host)
        return inside[1] if inside else ""


@dataclass(frozen=True, kw_only=True)
class Loki:
    """Streams by namespace, team and run."""

    endpoint: Endpoint
    tenant: str = ""


@dataclass(frozen=True, kw_only=True)
class Http:
    """Arrays of JSON objects."""

    endpoint: Endpoint


Destination = CloudWatch | Loki | Http


Setting = tuple[str, str]


def _section(kind: str, *settings: Setting) -> str:
    return "".join([f"[{kind}]\n", *(f"    {key} {value}\n" for key, value in settings)])


def config(namespaces: Sequence[str], destination: Destination) -> dict[str, str]:
    """The chart's `config`."""
    return {
        "service": _service(),
        "inputs": _input(namespaces),
        "filters": "\n".join([*_telling_whose(), *_counting(), _keeping()]),
        "outputs": f"{_output(destination)}\n{_exporter()}",
        "customParsers": "",
    }


def _service() -> str:
    return _section(
        "SERVICE",
        ("Daemon", "Off"),
        ("Flush", "1"),
        ("Log_Level", "warn"),
        ("HTTP_Server", "On"),
        ("HTTP_Listen", "0.0.0.0"),
        ("HTTP_Port", str(HEALTH_PORT)),
        ("Health_Check", "On"),
        ("storage.path", f"{STATE}/unsent"),
        # What waits on the disk is read back in such pieces of 2 MB.
        ("storage.max_chunks_up", "32"),
    )


def _input(namespaces: Sequence[str]) -> str:
    paths = ",".join(f"/var/log/containers/*_{name}_*.log" for name in sorted(namespaces))
    return _section(
        "INPUT",
        ("Name", "tail"),
        ("Path", paths),
        ("Tag", _TAG),
        ("multiline.parser", "cri"),
        ("DB", f"{STATE}/read.db"),
        ("DB.locking", "true"),
        # The first lines of a pod are there before its file is noticed.
        ("Read_from_Head", "true"),
        ("Refresh_Interval", "5"),
        ("Rotate_Wait", "30"),
        ("Buffer_Max_Size", "1M"),
        ("Skip_Long_Lines", "On"),
        ("storage.type", "filesystem"),
    )


def _filter(name: str, *settings: Setting) -> str:
    return _section("FILTER", ("Name", name), ("Match", _TAG), *settings)


def _telling_whose() -> Iterator[str]:
    """Whose line it is, in fields of one level by names that metrics and queries use, too."""
    yield _filter(
        "kubernetes",
        ("Kube_Tag_Prefix", _PREFIX),
        ("Labels", "On"),
        ("Annotations", "Off"),
        ("Merge_Log", "Off"),
        ("Buffer_Size", "256k"),
        # A pod's author does not decide whether its log is kept, nor how it is read.
        ("K8S-Logging.Parser", "Off"),
        ("K8S-Logging.Exclude", "Off"),
    )
    yield _lift("kubernetes", "of_")
    yield _lift("of_labels", "label_")
    renamed = {
        "of_namespace_name": "namespace",
        "of_pod_name": "pod",
        "of_container_name": "container",
        "of_host": "node",
        f"label_{naming.TEAM}": "team",
        f"label_{naming.RUN_ID}": "run_id",
    }
    yield _filter("modify", *(("Rename", f"{old} {new}") for old, new in renamed.items()))


def _lift(field: str, prefix: str) -> str:
    return _filter("nest", ("Operation", "lift"), ("Nested_under", field), ("Add_prefix", prefix))


def _counting() -> Iterator[str]:
    """Counts lines of each kind, by the pod that printed them.

    A label's value is a field of the record, so the names of all kinds are put into fields first; they are
    not kept.
    """
    patterns = LOG_PATTERNS.values()
    yield _filter("record_modifier", *(("Record", f"{_field(p)} {p.name}") for p in patterns))
    yield from map(_counter, patterns)


def _field(pattern: LogPattern) -> str:
    return f"kind_{pattern.name.replace('-', '_')}"


def _counter(pattern: LogPattern) -> str:
    """One filter, with one expression: of several, fluent-bit heeds the first alone.

    Without an interval it would hand over its counts at every single line, and the exporter show some of
    them twice (https://github.com/fluent/fluent-bit/issues/9413).
    """
    namespace, subsystem, name = series.LOG_MATCHES.name.split("_", 2)
    return _filter(
        "log_to_metrics",
        ("Alias", f"count-{pattern.name}"),
        ("Tag", _COUNTS),
        ("Metric_Mode", "counter"),
        ("Metric_Namespace", namespace),
        ("Metric_Subsystem", subsystem),
        ("Metric_Name", name),
        ("Metric_Description", "Lines in logs of runs by what they tell of"),
        ("Flush_Interval_Sec", "10"),
        ("Regex", f"log {as_setting(pattern.expression)}"),
        ("Add_Label", f"pattern {_field(pattern)}"),
        *(("Label_Field", label) for label in COUNTED_BY),
    )


def as_setting(expression: str) -> str:
    """An expression as a value that fluent-bit reads: it would cut a space off the end."""
    return f"{expression[:-1]}[ ]" if expression.endswith(" ") else expression


def _keeping() -> str:
    return _filter("record_modifier", *(("Allowlist_key", key) for key in KEPT))


def _output(destination: Destination) -> str:
    always = (
        ("Match", _TAG),
        ("Retry_Limit", "no_limits"),
        ("storage.total_limit_size", "1G"),
    )
    if isinstance(destination, CloudWatch):
        return _section(
            "OUTPUT",
            ("Name", "cloudwatch_logs"),
            *always,
            ("region", destination.region),
            ("log_group_name", destination.group),
            ("log_stream_prefix", "unknown."),
            ("log_stream_template", "$namespace.$pod.$container"),
            # The group is the stack's, with its key and its retention.
            ("auto_create_group", "Off"),
        )
    own = _loki(destination) if isinstance(destination, Loki) else _http(destination)
    return _section("OUTPUT", own[0], *always, *own[1:], *_reached(destination.endpoint))


def _loki(destination: Loki) -> list[Setting]:
    tenant = [("tenant_id", destination.tenant)] if destination.tenant else []
    return [
        ("Name", "loki"),
        ("uri", f"{destination.endpoint.path}/loki/api/v1/push"),
        *tenant,
        ("labels", "job=trainyard, namespace=$namespace, team=$team, run_id=$run_id"),
        ("line_format", "json"),
    ]


def _http(destination: Http) -> list[Setting]:
    return [
        ("Name", "http"),
        ("uri", destination.endpoint.path or "/"),
        ("format", "json"),
        ("json_date_key", "time"),
        ("json_date_format", "iso8601"),
        ("compress", "gzip"),
    ]


def _reached(endpoint: Endpoint) -> list[Setting]:
    found = [("host", endpoint.host), ("port", str(endpoint.port))]
    found += [("tls", "On"), ("tls.verify", "On")] if endpoint.tls else []
    if endpoint.credentials:
        found += [("http_user", f"${{{USERNAME}}}"), ("http_passwd", f"${{{PASSWORD}}}")]
    return found


def _exporter() -> str:
    return _section(
        "OUTPUT",
        ("Name", "prometheus_exporter"),
        ("Match", _COUNTS),
        ("Host", "0.0.0.0"),
        ("Port", str(METRICS_PORT)),
    )
