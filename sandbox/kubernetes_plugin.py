"""`python -m sandbox.kubernetes_plugin BINARY ...`: run the Kubernetes plugin for as long as its engine lives.

The engine ends its plugins, but a killed engine cannot, and the plugin does not notice. This process does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

ENGINE_CHECK_S = 1.0
"""Interval of the check that the engine is alive."""


def main(command: list[str]) -> int:
    """Run the plugin, pass signals on to it, and end it with the engine; return its exit code."""
    engine = os.getppid()
    # A group of its own: the engine signals this process, which passes the signal on once.
    plugin = subprocess.Popen(command, process_group=0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: plugin.send_signal(received))
    while True:
        try:
            return plugin.wait(ENGINE_CHECK_S)
        except subprocess.TimeoutExpired:
            if os.getppid() != engine:
                plugin.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
