"""The caller's transfer pod: a dev pod without GPUs that may change datasets. See docs/adr/06-tenancy.md."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from infra.domain import dev_pods, naming
from ops.cluster import Cluster, ClusterError, ConflictError
from ops.data import channel
from ops.data.channel import Channel
from ops.dev import connect, sessions
from ops.dev.sessions import ENDED, RUNNING, STOPPING, DevSession
from ops.submission import record

IMAGE: Final = "trainer"
HOURS: Final = 8.0
IDLE_MINUTES: Final = 10.0
"""It is kept so long for the next command; a request counts as use."""


@contextlib.contextmanager
def connected(
    args: argparse.Namespace, cluster: Cluster, root: str, show: Callable[[str], None]
) -> Iterator[Channel]:
    """Connect to a folder of the team's volumes, in the pod that is there or in a new one. Raises ClusterError."""
    team = sessions.team_of(args)
    words = connect.kubectl(args, naming.namespace(team))
    session = _running(cluster, team, show)
    with channel.connect([*words, "exec", "-i", session.pod, "--"], root) as found:
        yield found


def _running(cluster: Cluster, team: str, show: Callable[[str], None]) -> DevSession:
    # Rendering takes a third of a second to import, which the other commands do without.
    from ops.dev import pod as dev_pod

    known = record.read_record(cluster, team)
    user = record.caller(cluster)
    namespace, name = naming.namespace(team), dev_pods.job_name(user, dev_pods.TRANSFER)
    found = sessions.read_sessions(cluster, namespace)
    session = next((one for one in found if one.job == name and one.owner == user), None)
    if session is not None and session.state == RUNNING:
        return session
    request = dev_pod.DevRequest(
        user=user,
        team=team,
        name=dev_pods.TRANSFER,
        image=known.images.get(IMAGE, IMAGE),
        gpus=0,
        hours=HOURS,
        idle_minutes=IDLE_MINUTES,
        writes_data=True,
    )
    try:
        job = dev_pod.job(request, known.platform)
    except dev_pod.BadRequest as error:
        raise ClusterError(str(error)) from None
    if session is None or session.state in (ENDED, STOPPING):
        sessions.check_number(cluster, namespace, team)
        # Another command of this user may have started it since.
        with contextlib.suppress(ConflictError):
            sessions.create(cluster, job, dev_pods.TRANSFER)
    started = sessions.await_running(cluster, job["metadata"], dev_pods.TRANSFER, show)
    if started is None:
        raise ClusterError("transfer pod: it ended before it ran; trainyard dev list says why")
    return started
