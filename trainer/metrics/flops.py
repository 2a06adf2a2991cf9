"""Model FLOPs utilization (MFU): FLOPs that the model needs as a fraction of the devices' peak.

Needs no torch. Recomputed activations do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PEAK_BF16_FLOPS: Final = (
    # Vendor data sheets, dense bf16; longer names come first.
    ("B300", 2.25e15),
    ("GB200", 2.5e15),
    ("B200", 2.25e15),
    ("GH200", 989.4e12),
    ("H200 NVL", 835.5e12),
    ("H200", 989.4e12),
    ("H100 NVL", 835.5e12),
    ("H100 PCIe", 756e12),
    ("H100", 989.4e12),
    ("H20", 148e12),
    ("A100", 312e12),
    ("A10G", 70e12),
    ("A10", 125e12),
    ("L40S", 362e12),
    ("L40", 181e12),
    ("L4", 121e12),
    ("MI300X", 1307.4e12),
)
"""FLOP/s by part of the device name; V100 and older have no bf16."""


def peak_flops(device_name: str) -> float | None:
    """Return dense bf16 FLOP/s of one device; None for CPUs and unknown names."""
    words = device_name.replace("-", " ")
    for part, flops in PEAK_BF16_FLOPS:
        if f" {part} " in f" {words} ":
            return flops
    return None


def flops_per_token(
    *, parameters: int, looked_up: int, layers: int, width: int, sequence_length: int
) -> float:
    """Return FLOPs of one token's forward and backward pass: 6 N + 12 L W S.

    N is `parameters` without the `looked_up` ones (an input embedding that is not also the output
    matrix multiplies nothing); W is attention heads x their size; S tokens per sample. Two FLOPs
    per weight forward and four backward, and as much for each pair of positions in the attention,
    the causal mask not subtracted. Source: Chowdhery et al. 2022, "PaLM", appendix B.
    """
    return 6.0 * (parameters - looked_up) + 12.0 * layers * width * sequence_length


@dataclass
class ModelFlops:
    """FLOPs that the model needs, and those of the devices."""

    token_flops: float
    devices: int
    device_flops: float | None
    """Peak FLOP/s of one device; None if unknown."""

    def utilization(self, tokens_per_s: float) -> float | None:
        """Return MFU, 0 to 1; None without a known peak."""
        if not self.device_flops:
            return None
        return tokens_per_s * self.token_flops / (self.devices * self.device_flops)
