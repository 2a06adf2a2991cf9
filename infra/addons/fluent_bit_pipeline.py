"""fluent-bit's configuration: inputs, fields of a record, counters and outputs.

In its classic format, each value on one line. The chart renders it as a template, and fluent-bit substitutes
`${NAME}` from the environment: expressions must contain neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from infra.observability import series
from infra.observability.log_patterns import COUNTED, LOG_PATTERNS, LogPattern
from infra.sections.logs import LokiConfig

HEALTH_PORT: Final = 2020
METRICS_PORT: Final = 2021
METRICS_PORT_NAME: Final = "matches"

STATE: Final = "/var/lib/fluent-bit"
"""Folder on the node with file positions and up to 1 GiB of unsent data."""

USERNAME: Final = "LOGS_USERNAME"
PASSWORD: Final = "LOGS_PASSWORD"
"""Environment variables of its container."""

_TAG: Final = "run.*"
_COUNTS: Final = "counts"
_PREFIX: Final = "run.var.log.containers."
"""Prefix of tags; the file name that follows has pod, namespace and container, for the kubernetes filter."""

KEPT: Final = (
    *("log", "stream"),
    *("namespace", "pod", "container", "node", "team", "run_id"),
)
"""Fields of a record. All other pod metadata is dropped."""

COUNTED_BY: Final = ("namespace", "pod", "node", "run_id", "team")
"""Labels of the counters in addition to `pattern`."""


@dataclass(frozen=True, kw_only=True)
class CloudWatch:
    """An existing log group, with a stream per container."""

    region: str
    group: str


Destination = CloudWatch | LokiConfig


Setting = tuple[str, str]


def _section(kind: str, *settings: Setting) -> str:
    return "".join([f"[{kind}]\n", *(f"    {key} {value}\n" for key, value in settings)])


def config(namespaces: Sequence[str], destination: Destination) -> dict[str, str]:
    """Return the chart's `config`."""
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
        # Buffered chunks of 2 MB are read back up to this size.
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
        # A pod's first lines precede the discovery of its file.
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
    """Return filters that flatten pod metadata into the field names of metrics and queries."""
    yield _filter(
        "kubernetes",
        ("Kube_Tag_Prefix", _PREFIX),
        ("Labels", "On"),
        ("Annotations", "Off"),
        ("Merge_Log", "Off"),
        ("Buffer_Size", "256k"),
        # Pod annotations must not exclude logs or choose parsers.
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
    """Return filters that count lines by pattern and pod.

    Label values are fields of the record, so pattern names are temporary fields.
    """
    patterns = [LOG_PATTERNS[name] for name in COUNTED]
    yield _filter("record_modifier", *(("Record", f"{_field(p)} {p.name}") for p in patterns))
    yield from map(_counter, patterns)


def _field(pattern: LogPattern) -> str:
    return f"kind_{pattern.name.replace('-', '_')}"


def _counter(pattern: LogPattern) -> str:
    """Return one filter with one expression, since fluent-bit ignores all but the first.

    Without an interval it would emit its counts at every line, and the exporter would show some twice
    (https://github.com/fluent/fluent-bit/issues/9413).
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
    """Return an expression as a setting; fluent-bit strips trailing spaces."""
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
            # The stack creates the group, with its key and retention.
            ("auto_create_group", "Off"),
        )
    own = _loki(destination)
    return _section("OUTPUT", own[0], *always, *own[1:], *_reached(destination))


def _loki(destination: LokiConfig) -> list[Setting]:
    tenant = [("tenant_id", destination.tenant)] if destination.tenant else []
    return [
        ("Name", "loki"),
        ("uri", f"{destination.path}/loki/api/v1/push"),
        *tenant,
        ("labels", "job=trainyard, namespace=$namespace, team=$team, run_id=$run_id"),
        ("line_format", "json"),
    ]


def _reached(endpoint: LokiConfig) -> list[Setting]:
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
