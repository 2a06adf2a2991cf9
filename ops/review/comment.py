"""Post a review as the stack's one comment on a pull request on GitHub, and edit it afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3

from ops.cluster import ClusterError
from ops.review.report import marker

LENGTH_MAX: Final = 65_000
"""Characters of a comment; GitHub refuses more than 65,536."""

_TIMEOUT_S: Final = 60.0
_PAGE: Final = 100
_ACTIONS_USER: Final = "github-actions[bot]"
"""Who writes with the token of a workflow; such a token may not ask for its user."""

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")
_SUMMARY: Final = re.compile(r"<details><summary>(.*?)</summary>.*</details>")
_SHORTENED: Final = "Details are too long for a comment; `stack review --json` prints them"


@dataclass(frozen=True, kw_only=True)
class GitHub:
    """A repository on a GitHub server."""

    api: str
    repository: str
    token: str
    user: str = ""
    """Login that writes; empty: the token's, which is asked for."""

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded answer. Redirects are not followed: they would pass the token on."""
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.token}",
            "User-Agent": "trainyard",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        try:
            with urllib3.PoolManager() as pool:
                answer = pool.request(
                    method,
                    self.api + path,
                    body=json.dumps(body).encode() if body is not None else None,
                    headers=headers,
                    timeout=_TIMEOUT_S,
                    retries=False,
                )
            data = json.loads(answer.data) if answer.data else None
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"GitHub: {method} {path}: {error}") from None
        except ValueError:
            raise ClusterError(
                f"GitHub: {method} {path}: HTTP {answer.status}, the answer is not JSON"
            ) from None
        if not 200 <= answer.status < 300:
            reason = data.get("message", "") if isinstance(data, dict) else ""
            raise ClusterError(f"GitHub: {method} {path}: HTTP {answer.status} {reason}".rstrip())
        return data


def github(environment: Mapping[str, str]) -> GitHub:
    """Return the repository that the variables of a GitHub workflow name.

    Raises ClusterError with all variables that are missing or invalid.
    """
    api = environment.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
    repository = environment.get("GITHUB_REPOSITORY", "")
    token = environment.get("GITHUB_TOKEN", "")
    wrong = []
    if not _REPOSITORY.fullmatch(repository):
        wrong.append("GITHUB_REPOSITORY: not a repository; valid: OWNER/NAME; set it")
    if not token:
        wrong.append(
            "GITHUB_TOKEN: missing; valid: a token that may write comments of pull requests; set it"
        )
    at = urlsplit(api)
    if at.scheme != "https" and at.hostname != "127.0.0.1":
        wrong.append("GITHUB_API_URL: not https; a token is sent there; use an https URL")
    if wrong:
        raise ClusterError("\n".join(wrong))
    user = _ACTIONS_USER if environment.get("GITHUB_ACTIONS") == "true" else ""
    return GitHub(api=api, repository=repository, token=token, user=user)


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
    user = to.user or str(to.request("GET", "/user")["login"])
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
