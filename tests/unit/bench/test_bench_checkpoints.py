"""What the benchmarks of checkpoints conclude."""

from __future__ import annotations

from bench.trainer import durable, stall


def saved(save_s: float, load_s: float, right: bool = True) -> list[durable.SaveLoadResult]:
    """Ten rounds on a machine that grows slower and slower."""
    return [
        durable.SaveLoadResult(
            save_s=save_s * (1 + n / 10),
            save_cpu_s=1.0,
            load_s=load_s * (1 + n / 10),
            bytes=1.002,
            right=right,
        )
        for n in range(10)
    ]


def test_durable_saves_and_loads_are_compared_within_a_round() -> None:
    taken = {
        "ours": saved(0.4, 0.3),
        "hashed": saved(0.4, 0.2),
        "direct": saved(0.2, 0.2),
        "buffered": saved(1.6, 0.2),
        "dcp": saved(1.6, 0.6),
        "torch": saved(2.0, 0.5),
    }
    hash_s = {"blake3": [0.09] * 10, "sha256": [0.4] * 10}
    text = durable.table(taken, {"megabytes": 1000, "rounds": 10}, 1, hash_s)
    same = "to the raw file with the same hash"
    assert (
        f"- Durable save, {same}: 1.00 (1.00 to 1.00) times as long; goal at most 1.1; met" in text
    )
    assert f"- Load, {same}: 1.50 (1.50 to 1.50) times as long; goal at most 1.15; mis" in text
    assert "missed by 30%." in text
    assert "cores: 0.09 (0.09 to 0.09) s/GB; goal at most 0.1; met. SHA-256: 0.40" in text
    assert "| `dcp.save`, `dcp.load` | 2.32 | 1.00 | 4.00 (4.00 to 4.00) | 0.87 | 2.00 (" in text
    assert "- Bytes: 1.0020; goal at most 1.01; met." in text


def stalled(stall_s: float, slower: float | None) -> list[stall.SaveResult]:
    return [stall.SaveResult(stall_s=stall_s, slower=slower, background_s=1.0) for _ in range(10)]


def test_stalls_are_reported_in_copies_and_slower_steps_in_percent() -> None:
    taken = {
        (name, kind): stalled(0.09, 0.01) if name == "ours" else stalled(0.6, 0.08)
        for name in stall.BACKGROUND
        for kind in stall.STEP_KINDS
    }
    taken |= {(name, "training"): stalled(1.0, None) for name in ("dcp", "torch")}
    sizes = {"megabytes": 480, "rounds": 10, "steps": 6}
    text = stall.table(taken, [0.1] * 10, sizes, 1)
    assert "- The call blocks 0.90 (0.90 to 0.90) times one copy; goal at most 1.2; met." in text
    assert "| `dcp.async_save`, thread | 0.600 | 6.00 (6.00 to 6.00) | 1.00 | +8.0% (" in text
    assert text.count("+1.0% (+1.0% to +1.0%); goal at most 2%; met.") == 2
    assert text.count("met. While another process does the same work: +8.0% (+8.0% to +8.0%).") == 2
    assert text.splitlines()[8].endswith("|  |  |")  # torch.save has no background part
    worse = {**taken, ("ours", "launches"): stalled(0.13, 0.05)}
    text = stall.table(worse, [0.1] * 10, sizes, 1)
    assert "+5.0% (+5.0% to +5.0%); goal at most 2%; missed by 3.0 points." in text
