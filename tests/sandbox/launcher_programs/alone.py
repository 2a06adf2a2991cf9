"""A rank without torch that is a gang of its own: one word of the plan for each of its starts.

An exit code, after `+` with a step that is recorded first; or `work`, which ends with 0 once `finish` exists.
"""

import json
import os
import pathlib
import socket
import sys
import time

words = sys.argv[1:]
folder = pathlib.Path(words[words.index("--run-dir") + 1])
folder.mkdir(parents=True, exist_ok=True)
record = folder / "started"
starts = 1 + len(record.read_text().splitlines()) if record.exists() else 1
with record.open("a") as file:
    file.write(f"{starts} 0 {socket.gethostname()} {os.environ['TRAINYARD_RESTARTS_IN_POD']}\n")
plan = (pathlib.Path(__file__).parent / "plan").read_text().split()
word = plan[min(starts, len(plan)) - 1]
if word.startswith("+"):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": starts, "attempt": starts}) + "\n")
while word == "work" and not (folder / "finish").exists():
    time.sleep(0.1)
sys.exit(0 if word == "work" else int(word))
