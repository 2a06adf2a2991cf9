"""What the benchmarks of checkpoints conclude."""

from __future__ import annotations

from bench.trainer import durable, stall


def kept(save_s: float, load_s: float, right: bool = True) -> list[durable.Kept]:
    """Ten rounds on a machine that grows slower and slower."""
    return [
        durable.Kept(
            save_s=save_s * (1 + n / 10),
            save_cpu_s=1.0,
            load_s=load_s * (1 + n / 10),
            bytes=1.002,
            right=right,
        )
        for n in range(10)
    ]


def test_durable_saves_and_loads_are_compared_within_a_round() -> None:
    found = {
        "library": kept(0.4, 0.3),
        "raw": kept(0.4, 0.2),
        "dcp": kept(1.6, 0.6),
        "torch": kept(2.0, 0.5, right=False),
    }
    text = durable.section("DDP script", found)
    same = "to the raw file with the same hash"
    assert (
        f"- Durable save, {same}: 1.00 (1.00 to 1.00) times as long; goal at most 1.1: met." in text
    )
    assert (
        f"- Load, {same}: 1.50 (1.50 to 1.50) times as long; goal at most 1.15: missed by 30%."
        in text
    )
    assert "| `dcp.save`, `dcp.load` | 2.32 | 1.00 | 0.25 (0.25 to 0.25) | 0.87 | 0.50 (" in text
    assert "- Bytes: 1.0020; goal at most 1.01: met." in text
    assert text.endswith("- NOT restored as it was: `torch.save` and fsync, `torch.load`.")


def saved(stall_s: float, slower: float | None) -> list[stall.Saved]:
    one = stall.Saved(copy_s=0.1, stall_s=stall_s, background_s=1.0, slower=slower)
    return [one] * 10


def test_stalls_are_reported_in_copies_and_slower_steps_in_percent() -> None:
    found = {
        (arm, kind): saved(0.09, 0.01) if arm == "library" else saved(0.6, 0.08)
        for arm in stall.BACKGROUND
        for kind in stall.KINDS
    } | {(arm, "training"): saved(1.0, None) for arm in ("dcp", "torch")}
    text = stall.section("DDP script", found)
    assert "- The call blocks 0.90 (0.90 to 0.90) times one copy; goal at most 1.2: met." in text
    assert "| `dcp.async_save`, thread | 0.600 | 6.00 (6.00 to 6.00) | 1.00 | +8.0% (" in text
    assert text.count("+1.0% (+1.0% to +1.0%); goal at most 2%: met.") == 2
    assert text.count(" |  |  |") == 2  # what writes before it returns has no steps meanwhile
    worse = stall.section("DDP script", found | {("library", "launches"): saved(0.13, 0.05)})
    assert "+5.0% (+5.0% to +5.0%); goal at most 2%: missed." in worse
