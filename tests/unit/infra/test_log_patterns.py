"""Log patterns match lines that programs really write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.observability.log_patterns import LOG_PATTERNS, names_in

ROOT = Path(__file__).resolve().parents[3]

LINES = {
    "[rank3]:[E1121 12:00:01.123 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, Timeout(ms)=600000)": ("nccl-timeout",),
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, remote process exited or "
    "there was a network error, NCCL version 2.27.3 ncclRemoteError: A call failed": (
        "nccl-timeout",
    ),
    "node-1:77:103 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.3.7<41937> failed : "
    "Connection refused": ("nccl-timeout",),
    "rank 1: another rank is gone or hangs: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 120000ms for recv operation to complete": ("collective-timeout",),
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.0.3.7]:21034": ("collective-timeout",),
    "launch: the nodes did not meet: timed out": ("rendezvous-failed",),
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError": ("rendezvous-failed",),
    "[W socket.cpp:752] [c10d] The client socket has failed to connect to [host]:29400 (errno: 111 - "
    "Connection refused).": ("rendezvous-failed",),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.11 GiB": ("cuda-out-of-memory",),
    "RuntimeError: CUDA error: an illegal memory access was encountered": ("cuda-error",),
    "Failed to initialize NVML: Driver/library version mismatch": ("driver-mismatch",),
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.": (
        "driver-mismatch",
    ),
    "rank 0: /checkpoints/hello-v1-0a1b2c3d/checkpoints: none of the 3 checkpoints can be loaded; move the "
    "folder away to begin again from step 0": ("restore-failed",),
    "checkpoint not written: [Errno 28] No space left on device; training goes on": (
        "checkpoint-failed",
        "no-space",
    ),
    "launch: no progress for 3601 s: a rank hangs; 3600 s is program.progressTimeoutSeconds": (
        "no-progress",
    ),
    'trainyard-culprit {"symptom": "hung", "rank": 3}': ("rank-named",),
    "rank 0: step 17: loss is nan; lower optimizer.learning_rate": ("loss-not-finite",),
    "rank 0: step 17: loss is -inf; lower optimizer.learning_rate": ("loss-not-finite",),
    "rank 0: step 17: gradient norm is nan; lower optimizer.learning_rate": ("loss-not-finite",),
}
NOTHING = (
    "step    40/200  loss 3.512  12034 tokens/s  lr 1.0e-03",
    "NCCL INFO Bootstrap : Using eth0:10.0.3.7<0>",
    "NCCL version 2.27.3+cuda12.9",
    "resumed from step 40 on 2 ranks",
    "checkpoint step-00000040 written, 12.3 MB",
    "loss is 3.2; fine",
    "launch: told to stop before any rank was started",
    "timeout: 120 s",
    'trainyard-culprit {"symptom": "slow-rank", "rank": 3}',
)


@pytest.mark.parametrize(("line", "names"), LINES.items(), ids=lambda value: str(value)[:40])
def test_known_error_line_matches_its_patterns(line: str, names: tuple[str, ...]) -> None:
    assert names_in(line) == names


@pytest.mark.parametrize("line", NOTHING)
def test_ordinary_line_matches_no_pattern(line: str) -> None:
    assert names_in(line) == ()


def test_every_pattern_has_an_example_line() -> None:
    assert {name for names in LINES.values() for name in names} == set(LOG_PATTERNS)


def test_expressions_use_only_syntax_that_re2_and_onigmo_support() -> None:
    """RE2 and Onigmo lack lookaround, back-references, inline flags or named groups, or differ."""
    for pattern in LOG_PATTERNS.values():
        assert not re.search(r"\(\?|\\[1-9]|\\[AZzhHKQE]", pattern.expression), pattern.name
        assert "\n" not in pattern.expression and '"' not in pattern.expression


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("trainyard/node.py", "the nodes did not meet: "),
        ("trainer/checkpointing.py", "checkpoint not written: "),
        ("trainyard/checkpoints.py", "checkpoints can be loaded; "),
        ("trainer/__main__.py", "another rank is gone or hangs"),
        ("trainer/loop.py", "{what} is {value}; "),
    ],
)
def test_sources_still_contain_the_matched_messages(file: str, text: str) -> None:
    assert text in (ROOT / file).read_text()
