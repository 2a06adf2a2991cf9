"""Keep one open issue on GitHub per stack that has drifted: opened, edited, and closed when the drift is gone."""

from __future__ import annotations

from typing import Final

from ops.review.comment import fitted
from ops.review.drift import marker
from ops.review.github import GitHub

_PAGE: Final = 100
_GONE: Final = "The stack is as recorded again."


def keep(to: GitHub, stack: str, text: str | None) -> str:
    """Open or edit the stack's issue with `text`, or close it; return its address, empty if there is none.

    `text` None: there is no drift.
    """
    found = _open_issue(to, stack)
    issues = f"/repos/{to.repository}/issues"
    if found is None:
        if text is None:
            return ""
        answer = to.request("POST", issues, {"title": f"Drift of {stack}", "body": fitted(text)})
        return str(answer.get("html_url", ""))
    number, address, body = found
    if text is None:
        to.request("POST", f"{issues}/{number}/comments", {"body": _GONE})
        to.request("PATCH", f"{issues}/{number}", {"state": "closed"})
    elif body.strip() != text.strip():
        to.request("PATCH", f"{issues}/{number}", {"body": fitted(text)})
    return address


def _open_issue(to: GitHub, stack: str) -> tuple[int, str, str] | None:
    """Return number, address and text of the open issue that this user opened for the stack."""
    user = to.login()
    page = 1
    while True:
        path = f"/repos/{to.repository}/issues?state=open&per_page={_PAGE}&page={page}"
        issues = to.request("GET", path)
        for one in issues:
            author = (one.get("user") or {}).get("login")
            body = (one.get("body") or "").replace("\r\n", "\n")
            if (
                author == user
                and "pull_request" not in one
                and body.splitlines()[:1] == [marker(stack)]
            ):
                return int(one["number"]), str(one.get("html_url", "")), body
        if len(issues) < _PAGE:
            return None
        page += 1
