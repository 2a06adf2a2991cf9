"""A server on loopback that answers as GitHub's API does, for comments of pull request 12 and for issues."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOT = "github-actions[bot]"
TOKEN = "token-of-this-test"
OF_PULL_REQUEST = "/repos/acme/trainyard/issues/12/comments"
ONE = "/repos/acme/trainyard/issues/comments/"
ISSUES = "/repos/acme/trainyard/issues"


@dataclass
class Server:
    """Comments of pull request 12 and issues, oldest first."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    refuses: int = 0
    moved_to: str = ""
    url: str = ""

    def add(self, login: str | None, body: str) -> dict[str, Any]:
        made = {
            "id": 1000 + len(self.comments),
            "user": {"login": login} if login else None,
            "body": body,
            "html_url": f"https://github.example/{len(self.comments)}",
        }
        self.comments.append(made)
        return made

    def add_issue(self, login: str, title: str, body: str) -> dict[str, Any]:
        number = len(self.issues) + 1
        made = {"number": number, "user": {"login": login}, "title": title, "body": body}
        made |= {"state": "open", "said": [], "html_url": f"https://github.example/issues/{number}"}
        self.issues.append(made)
        return made

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any]:
        at = urlsplit(path)
        self.calls.append(f"{method} {at.path}")
        if token != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}
        if self.refuses:
            return self.refuses, {"message": "Resource not accessible by integration"}
        if (method, at.path) == ("GET", "/user"):
            return 200, {"login": "ada"}
        if (method, at.path) == ("GET", OF_PULL_REQUEST):
            query = parse_qs(at.query)
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return 200, self.comments[(page - 1) * size : page * size]
        if (method, at.path) == ("POST", OF_PULL_REQUEST):
            return 201, self.add(BOT, body["body"])
        for one in self.comments:
            if (method, at.path) == ("PATCH", ONE + str(one["id"])):
                one["body"] = body["body"]
                return 200, one
        if at.path.startswith(ISSUES) and not at.path.startswith(ONE):
            return self._answer_issue(method, at.path.removeprefix(ISSUES), at.query, body)
        return 404, {"message": "Not Found"}

    def _answer_issue(self, method: str, rest: str, query: str, body: Any) -> tuple[int, Any]:
        if method == "GET":
            asked = parse_qs(query)
            size, page = int(asked["per_page"][0]), int(asked["page"][0])
            found = [one for one in self.issues if one["state"] == asked["state"][0]]
            return 200, found[(page - 1) * size : page * size]
        if not rest:
            return 201, self.add_issue(BOT, body["title"], body["body"])
        number, _, what = rest.strip("/").partition("/")
        one = self.issues[int(number) - 1]
        if what == "comments":
            one["said"].append(body["body"])
            return 201, {}
        one.update(body)
        return 200, one


@contextmanager
def serving() -> Iterator[Server]:
    """Serve, with no comments and no issues, until the caller is done."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            status, data = state.answer(
                self.command, self.path, self.headers.get("Authorization", ""), body
            )
            content = json.dumps(data).encode()
            self.send_response(301 if state.moved_to else status)
            if state.moved_to:
                self.send_header("Location", state.moved_to + self.path)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test's output short."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{listening.server_port}"
    try:
        yield state
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
