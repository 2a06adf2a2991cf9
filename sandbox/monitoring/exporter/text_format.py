"""Prometheus' text exposition format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Sample = tuple[Mapping[str, str], float]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metric_family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    """Return a family with HELP and TYPE lines; an empty text without samples."""
    lines = [f"{name}{{{_labels(labels)}}} {_number(value)}\n" for labels, value in samples]
    if not lines:
        return ""
    return "".join([f"# HELP {name} {text}\n# TYPE {name} {kind}\n", *lines])


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    """Format as dcgm-exporter does: integers without a point, others with six digits."""
    return str(int(value)) if value == int(value) else f"{value:.6f}"
