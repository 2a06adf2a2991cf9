"""Starts the watchdog in the program of a rank as soon as that has imported torch.

`trainyard.rank` puts this folder first on PYTHONPATH. Nothing else is imported here, and the folder is taken
off again: the program's own modules keep their names, and processes that it starts are not ranks.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.dirname(os.path.dirname(_FOLDER))


class _AfterTorch:
    """Finds torch as Python would, and has the watchdog start once it is imported."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            plain = spec.loader.exec_module

            def execute(module):  # type: ignore[no-untyped-def]
                plain(module)
                _start()

            spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec


def _start() -> None:
    sys.path.append(_LIBRARY)
    try:
        from trainyard.watchdog import start_here

        start_here()
    except Exception as error:  # never the program's trouble
        print(f"watchdog: not started: {error}", file=sys.stderr)
    finally:
        sys.path.remove(_LIBRARY)


def _take_off() -> None:
    """Leave the path as it would be without this module, and import the one that it hides."""
    sys.path[:] = [place for place in sys.path if place != _FOLDER]
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    left = [place for place in places if place and place != _FOLDER]
    os.environ.pop("PYTHONPATH", None)
    if left:
        os.environ["PYTHONPATH"] = os.pathsep.join(left)
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError:  # there is no other
        sys.modules[__name__] = own


_take_off()
if os.environ.pop("TRAINYARD_WATCHED_BY", "") == str(os.getppid()):
    sys.meta_path.insert(0, _AfterTorch())
