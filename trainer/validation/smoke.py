"""Smoke test of a node's hardware: driver, GPU count, ECC errors and an exact matrix product."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trainer.validation import consistency, host
from trainer.validation.consistency import Expected, Finding, Verdict

if TYPE_CHECKING:
    import torch

_ASKED: Final = ("index", "name", "driver_version", "uuid", "ecc.errors.uncorrected.volatile.total")
_SMI_TIMEOUT_S: Final = 60
_SIDE: Final = {"cuda": 4096, "cpu": 512}
"""Rows and columns of the matrices."""
_ROUNDS: Final = 4
_RUNTIME_REMEDY: Final = (
    "check the driver of the node and NVIDIA's container runtime: `nvidia-smi` on the node, then the pods "
    "of the GPU Operator or the device plugin"
)


class Gpu(NamedTuple):
    """A GPU as reported by nvidia-smi, see _ASKED."""

    number: str
    name: str
    driver: str
    uuid: str
    ecc_errors: str
    """Uncorrectable errors since the driver was loaded; not a number without ECC."""


def run_smoke(processes: int, device: str, expected: Expected) -> Verdict:
    """Check this node. `processes`: GPUs that the pod asked for; `device`: cpu or cuda."""
    facts = host.host_facts()
    try:
        gpus = _nvidia_smi() if device == "cuda" else []
        facts |= {"device": device, "driver": gpus[0].driver if gpus else "", "gpus": len(gpus)}
        finding = check_driver(gpus, processes) if device == "cuda" else None
        if finding is None:
            finding, more = _compute(processes, device, expected, facts)
            facts |= more
    except _HardwareError as broken:
        cause, remedy = broken.args
        finding = Finding(cause=cause, remedy=remedy)
    return Verdict(validation="smoke", finding=finding, facts=facts)


class _HardwareError(Exception):
    """The hardware check cannot run: cause and remedy."""


def _nvidia_smi() -> list[Gpu]:
    """Query the GPUs. Raises _HardwareError when nvidia-smi is missing, hangs or fails."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise _HardwareError("there is no nvidia-smi in this container", _RUNTIME_REMEDY) from None
    except subprocess.TimeoutExpired:
        raise _HardwareError(
            f"nvidia-smi does not answer within {_SMI_TIMEOUT_S} s", "replace the node"
        ) from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise _HardwareError(f"nvidia-smi failed with {done.returncode}: {said}", _RUNTIME_REMEDY)
    return list(parse_nvidia_smi(done.stdout))


def parse_nvidia_smi(text: str) -> Iterator[Gpu]:
    for line in text.splitlines():
        fields = [part.strip() for part in line.split(",")]
        if len(fields) == len(_ASKED):
            yield Gpu(*fields)


def check_driver(gpus: list[Gpu], wanted: int) -> Finding | None:
    """Return a problem visible in nvidia-smi's output: missing GPUs or ECC errors."""
    if len(gpus) != wanted:
        return Finding(
            cause=f"nvidia-smi shows {len(gpus)} GPUs; the pod asked for {wanted}",
            remedy="compare with the node's allocatable nvidia.com/gpu; replace the node if one is lost",
        )
    bad = [g for g in gpus if g.ecc_errors.isdecimal() and int(g.ecc_errors)]
    if bad:
        each = ", ".join(f"GPU {g.number} ({g.uuid}): {g.ecc_errors}" for g in bad)
        return Finding(
            cause=f"uncorrectable ECC errors: {each}",
            remedy="drain the node and reset its GPUs; replace it if they come back",
        )
    return None


def _compute(
    processes: int, device: str, expected: Expected, known: dict[str, Any]
) -> tuple[Finding | None, dict[str, Any]]:
    """Multiply matrices on every GPU, or the CPU; return a problem and the first device's facts."""
    import torch

    if device == "cuda" and torch.cuda.device_count() != processes:
        raise _HardwareError(
            f"PyTorch for CUDA {torch.version.cuda} sees {torch.cuda.device_count()} GPUs; "
            f"nvidia-smi shows {processes}",
            "use an image whose CUDA the node's driver supports",
        )
    places = [torch.device(device)]
    if device == "cuda":
        places = [torch.device(device, number) for number in range(processes)]
    told = [known | host.device_facts(place) for place in places]
    facts = told[0] | {"driver": told[0]["driver"] or known["driver"]}
    try:
        wrong = {str(place): rows for place in places if (rows := wrong_rows(place))}
    except RuntimeError as error:
        raise _HardwareError(
            " ".join(str(error).split()), "replace the node if it comes again"
        ) from None
    if wrong:
        each = ", ".join(f"{rows} on {place}" for place, rows in wrong.items())
        cause = f"rows of a product of matrices are wrong: {each}"
        return Finding(cause=cause, remedy="replace the node: it computes wrong"), facts
    return consistency.first_finding(told, expected), facts


def wrong_rows(place: torch.device) -> int:
    """Return the number of wrong rows of matrix products over several rounds.

    Entries are integers that float32 and TF32 multiply and add exactly, so row sums can be computed without the
    product: (L R) 1 = L (R 1).
    """
    import torch

    side, generator = _SIDE[place.type], torch.Generator().manual_seed(7)
    left_NN, right_NN = (
        torch.randint(-4, 5, (side, side), generator=generator).float() for _ in range(2)
    )
    wanted_N = left_NN.double() @ right_NN.double().sum(dim=1)
    wrong = 0
    for _ in range(_ROUNDS):
        product_NN = left_NN.to(place) @ right_NN.to(place)
        wrong += int((product_NN.double().sum(dim=1).cpu() != wanted_N).sum().item())
    return wrong
