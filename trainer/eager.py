"""torch's optimizer and DistributedDataParallel without its compiler.

torch imports torch._dynamo (907 modules, 1.3 s of CPU time) when the first optimizer or DistributedDataParallel is
built: to mark some of their functions as not to be compiled, and to ask for one option. A run that compiles
nothing needs neither. Results are the same; where the compiler is loaded already, nothing changes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam, Optimizer

_COMPILER: Final = "torch._dynamo"
_MARKED: Final[tuple[Callable[..., Any], ...]] = (
    Optimizer.add_param_group,
    Optimizer.zero_grad,
    Optimizer.state_dict,
    Optimizer.load_state_dict,
    DistributedDataParallel._inside_ddp_forward,
)
"""Functions that load the compiler at their first call."""


@contextmanager
def without_compiler() -> Iterator[None]:
    """Build optimizers and DistributedDataParallel in this context without loading the compiler.

    What they need of it later is taken care of, too. Not for modules that are compiled.
    """
    if _COMPILER in sys.modules:
        yield
        return
    for function in _MARKED:
        own: Any = inspect.unwrap(function)
        own.__dynamo_disable = own  # torch._compile looks for this before it imports
    # Without the attribute, torch would import the module of this name.
    options = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")
    torch._dynamo = SimpleNamespace(utils=options)
    try:
        yield
    finally:
        del torch._dynamo


class AdamW(torch.optim.AdamW):
    """AdamW whose step does not load the compiler."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return _STEP(self, closure)


_STEP: Final = inspect.unwrap(Adam.step)
