"""The arithmetic of a model, and of the chips it runs on."""

from __future__ import annotations

import pytest

from trainer.metrics.flops import ModelFlops, flops_per_token, peak_flops


def test_a_token_costs_what_its_matrices_and_its_attention_cost() -> None:
    """Counted one by one: d = 8, 2 blocks, feed-forward 16, vocabulary 32, 4 positions."""
    block = 4 * 8 * 8 + 3 * 8 * 16
    matrices = 2 * block + 32 * 8
    attention = 2 * (2 * 8 * 4 + 2 * 8 * 4)  # queries x keys, then weights x values
    counted = 3 * (2 * matrices + attention)  # forward, and twice that backward
    embedding = 32 * 8
    found = flops_per_token(
        parameters=matrices + embedding, looked_up=embedding, layers=2, width=8, sequence_length=4
    )
    assert found == counted


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989.4),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10G", 70),
        ("NVIDIA A10", 125),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
    ],
)
def test_a_device_is_known_by_its_name(name: str, tera: float) -> None:
    assert peak_flops(name) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize(
    "name", ["x86_64", "", "Tesla V100-SXM2-16GB", "NVIDIA RTX A1000 Laptop GPU"]
)
def test_an_unknown_device_has_no_peak(name: str) -> None:
    assert peak_flops(name) is None


def test_utilisation_is_a_part_of_all_devices() -> None:
    assert ModelFlops(2e9, 4, 1e12).utilization(1000.0) == pytest.approx(0.5)
    assert ModelFlops(2e9, 4, None).utilization(1000.0) is None
