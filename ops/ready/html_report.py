"""Self-contained HTML report: no scripts and no external resources."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from ops.ready.outcome import Outcome, Row, StageResult, stamp
from ops.ready.report import Report, summary

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --open: #9a6700; --dry: #0969da }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #f85149; --open: #d29922; --dry: #58a6ff } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.5rem } p, ul { margin: .2rem 0 }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .5rem .8rem .5rem 0 }
tr { border-top: 1px solid var(--line) } th { font-weight: 600 }
ul { padding-left: 1.1rem } li, td { overflow-wrap: anywhere } td:first-child { white-space: nowrap }
.remedy { font-style: italic } .passed { color: var(--good) } .failed { color: var(--bad); font-weight: 600 }
.not-known { color: var(--open) } .simulated { color: var(--dry) } .skipped, .not-reached { opacity: .65 }
"""


def render(report: Report) -> str:
    """Render the report as an HTML page."""
    stack = report.stack
    title = f"Readiness of {stack.name}"
    row_summary = summary([row.outcome for row in report.rows])
    stage_summary = summary([found.outcome for found in report.stages])
    return (
        "<!doctype html>\n"
        f'<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n"
        f"<h1>{escape(title)}</h1>\n"
        f"<p>Cluster {escape(stack.cluster)}, scheduler {escape(stack.scheduler)},"
        f' <time datetime="{stamp(report.at)}">{report.at:%Y-%m-%d %H:%M} UTC</time></p>\n'
        f"<h2>Stages: {escape(stage_summary)}</h2>\n"
        f"{_table(_stage(found) for found in report.stages)}"
        f"<h2>Production checklist: {escape(row_summary)}</h2>\n"
        f"{_table(_row(row) for row in report.rows)}"
        "</html>\n"
    )


def _table(rows: Iterable[str]) -> str:
    return f"<table>\n{''.join(rows)}</table>\n"


def _stage(found: StageResult) -> str:
    lines = [
        f"<li>{_outcome(check.outcome)} {escape(f'{check.subject}: ' if check.subject else '')}"
        f"{escape(check.seen)}{_remedies([check.remedy] if check.remedy else [])}</li>"
        for check in found.checks
    ]
    return _entry(found.outcome, found.stage, found.title, lines)


def _row(row: Row) -> str:
    lines = [f"<li>{escape(line)}</li>" for line in row.evidence]
    return _entry(row.outcome, row.area, row.check, lines, _remedies(row.remedy))


def _entry(outcome: Outcome, name: str, text: str, lines: list[str], end: str = "") -> str:
    detail = f"<ul>{''.join(lines)}</ul>" if lines else ""
    return (
        f"<tr><td>{_outcome(outcome)}</td><th>{escape(name)}</th>"
        f"<td><p>{escape(text)}</p>{detail}{end}</td></tr>\n"
    )


def _outcome(outcome: Outcome) -> str:
    return f'<span class="{outcome.value.replace(" ", "-")}">{escape(outcome.value)}</span>'


def _remedies(texts: Iterable[str]) -> str:
    return "".join(f'<p class="remedy">→ {escape(text)}</p>' for text in texts)
