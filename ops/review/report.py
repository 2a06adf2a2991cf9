"""A review as the text of a comment on a pull request, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ops.review.consequences import Review
from ops.review.impacts import Consequence
from ops.review.live import Live
from ops.review.steps import Finding

LINES_MAX: Final = 30
"""Lines of the text."""

_SHOWN: Final = 3
"""Lines of each section before the rest is counted; --json has all."""

_LENGTH_MAX: Final = 65_000
"""Characters of a comment; GitHub refuses more than 65,536."""
_SUMMARY: Final = re.compile(r"<details><summary>(.*?)</summary>.*</details>")
_SHORTENED: Final = "Details are too long for a comment; `stack review --json` prints them"
_SECTIONS: Final = (
    ("data", "Data replaced or deleted"),
    ("protection", "Protection"),
    ("run", "Runs"),
    ("pool", "Pools"),
    ("quota", "Quotas"),
)


def marker(stack: str) -> str:
    """Return the line by which the comment of a stack is found and edited."""
    return f"<!-- trainyard-review {stack} -->"


def text(review: Review, live: Live | None = None) -> str:
    """Return the review as Markdown, at most LINES_MAX lines. `live`: the cluster's state, if it was read."""
    counts = ", ".join(f"{number} {change}" for change, number in sorted(review.steps.items()))
    outcome = "passes" if review.passes else "fails"
    lines = [
        marker(review.stack),
        f"**{review.stack}**: {outcome}; {counts or 'no changes'}",
        f"USD: {f'{_money(live.usd_per_hour)} per hour now, ' if live else ''}"
        f"{_money(review.usd_per_hour_at_max)} per hour at full scale,"
        f" {_money(review.usd_per_month_idle)} per month idle",
        f"Prices of nodes: {review.prices}; of services: only remembered",
    ]
    if review.unpriced:
        lines.append(f"Price not known: {_some(review.unpriced)}")
    if review.edited_runs:
        lines.append(
            f"Edited in place: {_some(review.edited_runs)}; a new document requires a new `version`"
        )
    lines += [*_violations(review.findings), *_findings(review.findings)]
    for what, title in _SECTIONS:
        found = [one for one in review.consequences if one.what == what]
        if found:
            lines += _section(title, found)
    lines += _taken(review, placed=live is not None and live.placed)
    ends = any(one.does in ("stopped", "restarted") for one in review.consequences)
    if live is None:
        if ends:
            lines.append("GPU-hours that stopped runs lose since their last checkpoint: not known")
        lines.append("Nodes that run now: not known; `--live` reads the cluster")
    else:
        lines += _live(live)
    return "\n".join(lines[:LINES_MAX]) + "\n"


def fitted(text: str) -> str:
    """Return the text within the length of a comment: the longest folded details are left out first."""
    if len(text) <= _LENGTH_MAX:
        return text
    lines = [*text.rstrip("\n").splitlines(), _SHORTENED]
    while len("\n".join(lines)) >= _LENGTH_MAX:
        longest = max(range(len(lines)), key=lambda n: len(lines[n]))
        summary = _SUMMARY.fullmatch(lines[longest])
        lines[longest] = summary[1] if summary else lines[longest][:200] + "..."
    return "\n".join(lines) + "\n"


def _taken(review: Review, *, placed: bool) -> list[str]:
    """Return what the change takes from runs that it does not name."""
    if not review.impacts:
        return []
    names = _some(str(one) for one in review.impacts)
    unknown = "" if placed else "; which submitted runs these are is not known"
    return [f"Reaches the runs on: {_escaped(names)}{unknown}"]


def _live(live: Live) -> list[str]:
    """Return what stopped runs lose, and the nodes."""
    lines = []
    reasons = {one.gap if one.hours is None else "" for one in live.unsaved}
    if reasons and "" not in reasons:
        lines.append(f"GPU-hours lost with the runs that end: not known: {'; '.join(reasons)}")
    elif live.unsaved:
        known = [one.gpu_hours for one in live.unsaved]
        total = sum(one for one in known if one is not None)
        more = f" and {known.count(None)} runs not known" if None in known else ""
        folded = "<br>".join(_escaped(f"{one.run}: {one}") for one in live.unsaved)
        lines.append(
            f"<details><summary>Lost with the runs that end: at most {total:.1f} GPU-hours{more}</summary>"
            f"{folded}</details>"
        )
    nodes = ", ".join(f"{pool} {number}" for pool, number in live.nodes.items())
    return [*lines, f"Nodes now: {nodes or 'none'}", *live.gaps]


def _section(title: str, found: Sequence[Consequence]) -> list[str]:
    """Return one line that shows the names, with the details folded into it."""
    names = _some([f"{one.name} {one.happens}" for one in found])
    details = [f"{one.name} {one.happens}: {one.detail}" for one in found if one.detail]
    if not details:
        return [f"{title}: {names}"]
    folded = "<br>".join(_escaped(one) for one in details)
    return [f"<details><summary>{title}: {_escaped(names)}</summary>{folded}</details>"]


def _violations(findings: Iterable[Finding]) -> Iterator[str]:
    """Return one line per policy, mandatory ones first, with each violation folded into it."""
    found: dict[tuple[bool, str], list[Finding]] = {}
    for one in findings:
        if one.policy:
            found.setdefault((one.fails, one.policy), []).append(one)
    for (fails, policy), each in list(found.items())[:_SHOWN]:
        names = _some(dict.fromkeys(one.resource or "the stack" for one in each))
        level = "mandatory" if fails else "advisory"
        alike: dict[str, list[str]] = {}
        for one in each:
            alike.setdefault(one.text, []).append(one.resource or "the stack")
        folded = "<br>".join(_escaped(f"{', '.join(at)}: {what}") for what, at in alike.items())
        title = f"Policy `{policy}` ({level}) is violated: {_escaped(names)}"
        yield f"<details><summary>{title}</summary>{folded}</details>"
    if len(found) > _SHOWN:
        rest = [f"`{policy}`" for _, policy in list(found)[_SHOWN:]]
        yield f"Policies that are violated, too: {', '.join(rest)}"


def _findings(findings: Iterable[Finding]) -> list[str]:
    """Return the errors, then the number of warnings."""
    others = [one for one in findings if not one.policy]
    fails = [one.text for one in others if one.fails]
    warnings = [one.text for one in others if not one.fails]
    lines = [f"Error: {_escaped(one[:300])}" for one in fails[:_SHOWN]]
    if len(fails) > _SHOWN:
        lines.append(f"Errors that are not shown: {len(fails) - _SHOWN}")
    if warnings:
        folded = "<br>".join(_escaped(one[:300]) for one in warnings)
        lines.append(f"<details><summary>{len(warnings)} warnings</summary>{folded}</details>")
    return lines


def _some(names: Iterable[str]) -> str:
    every = list(names)
    rest = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + rest


def _escaped(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;").replace("-&gt;", "->")


def _money(usd: float | None) -> str:
    if usd is None:
        return "not known"
    return "no change" if abs(usd) < 0.005 else f"{usd:+,.2f}"


def to_json(review: Review, live: Live | None = None) -> dict[str, Any]:
    """Return the review with the keys that docs/previews.md lists."""
    return {
        **({"live": _live_json(live)} if live else {}),
        "stack": review.stack,
        "passes": review.passes,
        "steps": dict(review.steps),
        "usdPerHourAtMax": review.usd_per_hour_at_max,
        "usdPerHourIdle": review.usd_per_hour_idle,
        "usdPerMonthIdle": review.usd_per_month_idle,
        "unpriced": list(review.unpriced),
        "prices": review.prices,
        "consequences": [
            _fields(one, "what", "name", "does", "detail")
            | ({} if one.certain else {"certain": False})
            for one in review.consequences
        ],
        "impacts": [_fields(one, "what", "name", "why") for one in review.impacts],
        "editedRuns": list(review.edited_runs),
        "findings": [
            _fields(one, "fails", "text")
            | (_fields(one, "policy", "resource") if one.policy else {})
            for one in review.findings
        ],
    }


def _fields(one: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def _live_json(live: Live) -> dict[str, Any]:
    return {
        "nodes": dict(live.nodes),
        "usdPerHour": live.usd_per_hour,
        "unsaved": [
            {
                "run": one.run,
                "gpus": one.gpus,
                "gpuHours": one.gpu_hours,
                "checkpointStep": one.step,
            }
            for one in live.unsaved
        ],
        "gaps": [*live.gaps, *(f"{one.run}: {one.gap}" for one in live.unsaved if one.gap)],
    }
