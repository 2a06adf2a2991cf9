"""Requests to a repository on GitHub with the token of a workflow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3

from ops.cluster import ClusterError

_TIMEOUT_S: Final = 60.0
_ACTIONS_USER: Final = "github-actions[bot]"
"""Who writes with the token of a workflow; such a token may not ask for its user."""

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")


@dataclass(frozen=True, kw_only=True)
class GitHub:
    """A repository on a GitHub server."""

    api: str
    repository: str
    token: str
    user: str = ""
    """Login that writes; empty: the token's, which is asked for."""

    def login(self) -> str:
        """Return the name of the user that writes."""
        return self.user or str(self.request("GET", "/user")["login"])

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
            "GITHUB_TOKEN: missing; valid: a token that may write pull requests and issues; set it"
        )
    at = urlsplit(api)
    if at.scheme != "https" and at.hostname != "127.0.0.1":
        wrong.append("GITHUB_API_URL: not https; a token is sent there; use an https URL")
    if wrong:
        raise ClusterError("\n".join(wrong))
    user = _ACTIONS_USER if environment.get("GITHUB_ACTIONS") == "true" else ""
    return GitHub(api=api, repository=repository, token=token, user=user)
