"""Evaluation and reporting."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config.limits import Issues, out_of_range, positive
from trainer.config_errors import ConfigIssue

_SCHEMES = ("sqlite", "http", "https")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Loss on the held-out files, also measured at the end of the run."""

    every_steps: int | None = 50
    """Steps between evaluations; null: only at the end of the run."""
    samples: int = 128
    """Samples, spread evenly over the held-out files; all of them when there are fewer."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        yield from positive("evaluation.every_steps", self.every_steps)
        yield from positive("evaluation.samples", self.samples)


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Progress lines, Prometheus and MLflow; metrics.jsonl always has every step."""

    every_seconds: float = 5.0
    """Seconds between progress lines."""
    metric_lines_every: int | None = None
    """Steps between lines `trainyard-metric {...}` on standard output, which `trainyard sweep` reads; the last
    step and evaluations are always among them. null: none."""
    prometheus_port: int | None = None
    """Port on which the leading rank serves /metrics, 1 to 65535; null: none. On the platform every run
    uses the platform's port, and this must be absent."""
    prometheus_address: str = "127.0.0.1"
    """Address it listens on."""
    mlflow: str | None = None
    """Tracking URI: sqlite:///FILE, http://SERVER or https://SERVER; null: no MLflow. Credentials belong
    in MLflow's environment (MLFLOW_TRACKING_TOKEN ...), not in the URI."""
    mlflow_experiment: str = "trainyard"
    """Experiment of the MLflow run; created if it does not exist."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        yield from positive("report.every_seconds", self.every_seconds)
        yield from positive("report.metric_lines_every", self.metric_lines_every)
        port = self.prometheus_port
        if port is not None and not 0 < port < 65536:
            yield out_of_range(
                "report.prometheus_port", port, "must be between 1 and 65535, or null"
            )
        if self.mlflow is not None:
            yield from uri_issues("report.mlflow", self.mlflow)


def uri_issues(path: str, uri: str) -> Issues:
    """Check a tracking URI."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in _SCHEMES or not rest:
        yield ConfigIssue(
            path=path,
            problem=f"{uri!r} is not a tracking URI",
            valid="must be sqlite:///FILE, http://SERVER or https://SERVER",
            action="correct it",
            code="invalid-uri",
        )
    elif scheme != "sqlite" and "@" in rest.partition("/")[0]:
        yield ConfigIssue(
            path=path,
            problem="contains credentials, and the URI is recorded",
            valid="must not contain credentials",
            action="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead",
            code="plaintext-secret",
        )
