"""Post a review as the stack's one comment on a pull request on GitHub, and edit it afterwards."""

from __future__ import annotations

import re
from typing import Final

from ops.review.github import GitHub
from ops.review.report import marker

LENGTH_MAX: Final = 65_000
"""Characters of a comment; GitHub refuses more than 65,536."""

_PAGE: Final = 100
_SUMMARY: Final = re.compile(r"<details><summary>(.*?)</summary>.*</details>")
_SHORTENED: Final = "Details are too long for a comment; `stack review --json` prints them"


def post(to: GitHub, pull_request: int, stack: str, text: str) -> str:
    """Create the stack's comment or replace its text; return the comment's address."""
    body = {"body": fitted(text)}
    found = _existing(to, pull_request, stack)
    if found is None:
        path = f"/repos/{to.repository}/issues/{pull_request}/comments"
        answer = to.request("POST", path, body)
    else:
        answer = to.request("PATCH", f"/repos/{to.repository}/issues/comments/{found}", body)
    return str(answer.get("html_url", "")) if isinstance(answer, dict) else ""


def _existing(to: GitHub, pull_request: int, stack: str) -> int | None:
    """Return the id of the first comment that this user wrote for the stack.

    Others may write the marker as well: their comments are left alone.
    """
    user = to.login()
    page = 1
    while True:
        path = f"/repos/{to.repository}/issues/{pull_request}/comments"
        comments = to.request("GET", f"{path}?per_page={_PAGE}&page={page}")
        for comment in comments:
            # The author of a deleted account is null.
            author = (comment.get("user") or {}).get("login")
            first = (comment.get("body") or "").splitlines()[:1]
            if author == user and first == [marker(stack)]:
                return int(comment["id"])
        if len(comments) < _PAGE:
            return None
        page += 1


def fitted(text: str) -> str:
    """Return the text within LENGTH_MAX: the longest folded details are left out first."""
    if len(text) <= LENGTH_MAX:
        return text
    lines = [*text.rstrip("\n").splitlines(), _SHORTENED]
    while len("\n".join(lines)) >= LENGTH_MAX:
        longest = max(range(len(lines)), key=lambda n: len(lines[n]))
        summary = _SUMMARY.fullmatch(lines[longest])
        lines[longest] = summary[1] if summary else lines[longest][:200] + "..."
    return "\n".join(lines) + "\n"
