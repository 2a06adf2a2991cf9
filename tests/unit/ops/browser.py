"""A headless Chromium that tests drive by its DevTools protocol."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import websocket

DEADLINE_S: Final = 180.0
NAMES: Final = ("chromium", "chromium-headless-shell", "chromium-browser")
CHROMIUM_ENV: Final = "CHROMIUM"


def find_chromium() -> str | None:
    """Return the program: that of $CHROMIUM, else Debian's; None without one."""
    given = os.environ.get(CHROMIUM_ENV)
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(
            address, timeout=DEADLINE_S, suppress_origin=True
        )
        self._number = 0
        self.errors: list[str] = []
        """Exceptions and console errors, such as violations of the content security policy."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        # Without it a page in the background has no keyboard focus.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Run a command and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(str(params["entry"]["text"]))

    def open(self, address: str) -> None:
        """Go to a page and wait until it is loaded."""
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self) -> str:
        """Return what is on screen."""
        return re.sub(r"\s+", " ", str(self.value("document.querySelector('main').innerText")))

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + DEADLINE_S
        while not self.value(f"Boolean({condition})"):
            assert time.monotonic() < end, f"{condition} is false; on screen: {self.text()[:2000]}"
            time.sleep(0.05)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key. `text`: what it types."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def resize(self, width: int, height: int) -> None:
        """Give the page a size in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer a color scheme: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def open_tab(program: str, profile: Path) -> Iterator[Tab]:
    """Start a browser with an empty profile; yield its tab."""
    command = [program, "--headless", "--disable-gpu", "--no-sandbox", "--no-first-run"]
    command += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            tab = Tab(_tab_address(process, profile / "DevToolsActivePort"))
            yield tab
            tab.close()
        finally:
            process.terminate()
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _tab_address(process: subprocess.Popen[bytes], file: Path) -> str:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        assert process.poll() is None, f"the browser ended with {process.returncode}"
        try:
            port = file.read_text().split()[0]
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{port}/json", timeout=DEADLINE_S) as answer:
                for one in json.load(answer):
                    if one["type"] == "page":
                        return str(one["webSocketDebuggerUrl"])
        except (OSError, IndexError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError("the browser opened no DevTools port")
