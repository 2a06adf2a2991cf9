"""What this group gives to groups that join: its state, and each update since.

The ranks of a group feed the same groups: rank 0 decides from what all of them report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from training.trainer.elastic.exchange import READY_GROUPS
from training.trainer.elastic.links import Listener
from training.trainer.elastic.transfer import AppliedStep, CopyMemory, Donor, Tensors
from training.trainer.elastic.views import View
from training.trainer.loop import Run

_FAILED: Final = -2


@dataclass
class Donors:
    """This rank's part of the transfers."""

    listener: Listener
    about: Mapping[str, Any]
    """What must be equal in both groups."""
    _fed: dict[str, Donor] = field(default_factory=dict)
    _memory: CopyMemory = field(default_factory=CopyMemory)

    def report(self) -> dict[str, Any]:
        """Return who waits for this rank, if it can begin, and the last step of those that it feeds."""
        fed = {
            peer: _FAILED if donor.failed else donor.acknowledged
            for peer, donor in self._fed.items()
        }
        waiting = [peer for _, peer in list(self.listener.joins)] if self._memory.ready else []
        return {"waiting": waiting, "fed": fed}

    @staticmethod
    def decide(reports: list[dict[str, Any]], keep: int, fill: int) -> dict[str, Any]:
        """Return whom to feed from now on, and whom no longer.

        `keep`: groups that this one may go on to feed; `fill`: up to how many it may begin with further ones.
        """
        own = reports[0]["fed"]
        steps = {peer: min(report["fed"].get(peer, _FAILED) for report in reports) for peer in own}
        fed = {peer: step for peer, step in steps.items() if step != _FAILED}
        waiting = [
            peer
            for peer in reports[0]["waiting"]
            if all(peer in report["waiting"] for report in reports)
        ]
        busy = -1 in fed.values() or len(fed) >= min(fill, READY_GROUPS)
        return {
            "fed": dict(list(fed.items())[: max(0, keep)]),
            "start": waiting[0] if waiting and not busy else "",
            "refuse": busy,
        }

    def obey(
        self, orders: Mapping[str, Any], run: Run, tensors: Tensors, *, compared: bool
    ) -> None:
        """Do what was decided; between two steps. Only a state that all groups have `compared` is given away."""
        for peer in [peer for peer in self._fed if peer not in orders["fed"]]:
            self._fed.pop(peer).close()
        kept = []
        while self.listener.joins:
            connection, peer = self.listener.joins.pop(0)
            if peer == orders["start"] and compared:
                connection.settimeout(run.config.collective_timeout_s)
                self._fed[peer] = Donor(
                    connection, peer, run.progress, tensors, self.about, self._memory
                )
            elif orders["refuse"]:
                connection.close()  # the caller tries again
            else:
                kept.append((connection, peer))
        if kept:
            self._memory.prepare(tensors)
        self.listener.joins[:0] = kept

    def offer(self, step: AppliedStep) -> None:
        """Send an update to all."""
        if self._fed:
            kept = AppliedStep(step.note, step.share.detach().cpu().clone())
            for donor in self._fed.values():
                donor.offer(kept)

    def adopt(self, view: View) -> None:
        """Let those that are members of a view take part in it."""
        for peer in [peer for peer in self._fed if view.position(peer) is not None]:
            self._fed.pop(peer).adopt(view.number)

    def close(self) -> None:
        """End all transfers."""
        while self._fed:
            self._fed.popitem()[1].close()
