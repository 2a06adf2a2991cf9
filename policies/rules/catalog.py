"""All rules of the pack: those that the modules of this folder define."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Final

from . import __name__ as _PACKAGE
from . import __path__ as _PATH
from .model import Rule

_MODULES: Final = [
    import_module(f"{_PACKAGE}.{module.name}")
    for module in pkgutil.iter_modules(_PATH)
    if module.name != "catalog"
]
RULES: Final[tuple[Rule, ...]] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Rule)
)
