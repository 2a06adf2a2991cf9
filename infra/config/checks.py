"""What one field cannot know: names that must exist or be unique, sums that must fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra import catalog, naming
from infra.config.mistakes import Mistake, did_you_mean, join, one_of, shown
from infra.config.model import SOURCE_SUFFIX, PoolConfig, StorageConfig, TeamConfig
from infra.pools import Network, Workload


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a stack file with their places; malformed fields are replaced by neutral ones."""

    pools: Sequence[tuple[int, PoolConfig]]
    teams: Sequence[tuple[int, TeamConfig]]
    storage: StorageConfig | None
    raw: dict[str, Any]

    @property
    def pool_names(self) -> frozenset[str]:
        """Every pool that the file names."""
        return frozenset(pool.name for _, pool in self.pools)

    @property
    def all_known(self) -> bool:
        """Whether there are pools, and the catalog knows all their types."""
        known = catalog.load().types
        return bool(self.pools) and all(
            name in known for _, pool in self.pools for name in pool.instance_types
        )


def _duplicates(section: str, names: Sequence[tuple[int, str]]) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for index, name in names:
        if name in first:
            yield Mistake(
                path=f"{section}[{index}].name",
                got=shown(name),
                allowed=f"a name of its own ({section}[{first[name]}] has this one)",
                remedy="rename one of them",
            )
        first.setdefault(name, index)


def unique_names(parts: Parts) -> Iterator[Mistake]:
    """Pools and teams have names of their own."""
    yield from _duplicates("nodePools", [(i, p.name) for i, p in parts.pools])
    yield from _duplicates("teams", [(i, t.name) for i, t in parts.teams])


def pool_sizes(parts: Parts) -> Iterator[Mistake]:
    """min <= max."""
    for index, pool in parts.pools:
        if pool.min > pool.max:
            yield Mistake(
                path=f"nodePools[{index}].min",
                got=str(pool.min),
                allowed=f"at most max, {pool.max}",
                remedy="lower min or raise max",
            )


def instance_types(parts: Parts) -> Iterator[Mistake]:
    """Types are in the catalog, have what the pool is for, and can take each other's place."""
    known = catalog.load().types
    for index, pool in parts.pools:
        for place, name in enumerate(pool.instance_types):
            path = f"nodePools[{index}].instanceTypes[{place}]"
            if name not in known and _is_named(parts, index, place):
                yield Mistake(
                    path=path,
                    got=shown(name),
                    allowed=one_of(known),
                    remedy=did_you_mean(name, known, "choose one, or add it to infra/catalog.yaml"),
                )
            elif name in known:
                yield from _fits_pool(path, pool, name)


def _is_named(parts: Parts, index: int, place: int) -> bool:
    """Whether the file itself names a type there; a neutral one is nobody's mistake."""
    named = parts.raw["nodePools"][index].get("instanceTypes")
    return isinstance(named, list) and place < len(named) and isinstance(named[place], str)


def _fits_pool(path: str, pool: PoolConfig, name: str) -> Iterator[Mistake]:
    instance = catalog.load().types[name]
    if pool.workload is Workload.GPU_TRAINING and not instance.gpus:
        yield Mistake(
            path=path,
            got=f"{shown(name)}, which has no GPU",
            allowed="instance types with GPUs in a gpu-training pool",
            remedy="choose a GPU type, or set workload: cpu",
        )
    elif pool.workload is Workload.CPU and instance.gpus:
        yield Mistake(
            path=path,
            got=f"{shown(name)}, which has {instance.gpus} GPUs",
            allowed="instance types without GPUs in a cpu pool",
            remedy="choose a CPU type, or set workload: gpu-training",
        )
    elif pool.network is Network.EFA and not instance.efa_cards:
        yield Mistake(
            path=path,
            got=f"{shown(name)}, which has no EFA",
            allowed="instance types with EFA in a pool of network efa",
            remedy="choose another type, or set network: tcp",
        )


def reserved_labels(parts: Parts) -> Iterator[Mistake]:
    """Extra labels do not contradict what follows from the pool."""
    for index, pool in parts.pools:
        if any(name not in catalog.load().types for name in pool.instance_types):
            continue
        bare = pool.model_copy(update={"labels": {}}).pool("x")
        own = {*bare.labels(), naming.GPU_MODEL, naming.INSTANCE_TYPE, naming.HOSTNAME}
        for key in pool.labels:
            if key in own:
                yield Mistake(
                    path=f"nodePools[{index}].labels.{key}",
                    got="a label that follows from the pool",
                    allowed="other labels",
                    remedy="remove it",
                )


def guaranteed_nodes(parts: Parts) -> Iterator[Mistake]:
    """Guarantees name GPU pools, and together are no more than the pool has."""
    # Of two pools with one name, which is a mistake of its own, the first counts.
    pools = {pool.name: (index, pool) for index, pool in reversed(parts.pools)}
    if not pools:
        return
    promised: dict[str, int] = {}
    for index, team in parts.teams:
        for name, nodes in team.guaranteed.items():
            path = f"teams[{index}].guaranteed.{name}"
            if name not in parts.pool_names:
                yield Mistake(
                    path=path,
                    got="an unknown pool",
                    allowed=one_of(parts.pool_names),
                    remedy=did_you_mean(name, parts.pool_names, "name a pool of nodePools"),
                )
                continue
            pool = pools[name][1]
            if pool.workload is Workload.CPU:
                yield Mistake(
                    path=path,
                    got="a cpu pool",
                    allowed="gpu-training pools, for only GPU nodes are queued for",
                    remedy="remove it",
                )
                continue
            before = promised.get(name, 0)
            promised[name] = before + nodes
            if promised[name] > pool.max:
                yield Mistake(
                    path=path,
                    got=f"{nodes}, {promised[name]} with the teams above",
                    allowed=f"at most {pool.max - before}, for the pool has at most {pool.max}",
                    remedy=f"lower it, or raise nodePools[{pools[name][0]}].max",
                )


def gpu_quotas(parts: Parts) -> Iterator[Mistake]:
    """A team's GPU quota is not above what all pools have."""
    if not parts.all_known:
        return
    known = catalog.load().types
    total = sum(p.max * min(known[t].gpus for t in p.instance_types) for _, p in parts.pools)
    for index, team in parts.teams:
        if team.quota.gpus > total:
            yield Mistake(
                path=f"teams[{index}].quota.gpus",
                got=str(team.quota.gpus),
                allowed=f"at most {total}, all GPUs of all pools",
                remedy="lower it, or enlarge a pool",
            )


def storage_class(parts: Parts) -> Iterator[Mistake]:
    """Only simulated nodes can mount the simulated storage."""
    real = any(not pool.nodes.simulated for _, pool in parts.pools)
    if parts.storage and parts.storage.storage_class is None and real:
        yield Mistake(
            path="storage.storageClass",
            got="nothing",
            allowed="a StorageClass of the cluster that serves ReadWriteMany",
            remedy="add it",
        )


def source_images(parts: Parts) -> Iterator[Mistake]:
    """Only simulated nodes can run the checkout itself; others pull from a registry."""
    images = parts.raw.get("images")
    if not isinstance(images, dict) or all(p.nodes.simulated for _, p in parts.pools):
        return
    for name, reference in images.items():
        if isinstance(reference, str) and reference.endswith(SOURCE_SUFFIX):
            yield Mistake(
                path=f"images.{name}",
                got=shown(reference),
                allowed="REPOSITORY@sha256:DIGEST where nodes are real",
                remedy="push the image and pin the digest that the registry shows",
            )


_SECRET_VALUES: Final = re.compile(
    r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}"
    r"|xox[bapr]-[A-Za-z0-9-]{10,}|sk-[A-Za-z0-9]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_SECRET_KEYS: Final = re.compile(
    r"(.*[-_])?(password|passwd|secret|secretkey|secretaccesskey|apikey|api[-_]key|accesskey"
    r"|access[-_]key|authtoken|accesstoken|access[-_]token|privatekey|private[-_]key)",
    re.IGNORECASE,
)


def plaintext_secrets(parts: Parts) -> Iterator[Mistake]:
    """Nothing in the file looks like a credential."""
    return secrets_in(parts.raw, "")


def secrets_in(value: Any, path: str) -> Iterator[Mistake]:
    """Every place in a parsed file that looks like a credential in plain text."""
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            return
        for key, inner in value.items():
            place = join(path, [str(key)])
            if isinstance(inner, str) and inner and _SECRET_KEYS.fullmatch(str(key)):
                yield _secret(place)
            else:
                yield from secrets_in(inner, place)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from secrets_in(inner, f"{path}[{index}]")
    elif isinstance(value, str) and _SECRET_VALUES.search(value):
        yield _secret(path)


def _secret(path: str) -> Mistake:
    return Mistake(
        path=path,
        got="what looks like a secret in plain text",
        allowed="no secrets in a file that is committed",
        remedy="put it in a Kubernetes Secret, and change it where it is valid",
    )


ALL: Final[tuple[Callable[[Parts], Iterator[Mistake]], ...]] = (
    unique_names,
    pool_sizes,
    instance_types,
    reserved_labels,
    guaranteed_nodes,
    gpu_quotas,
    storage_class,
    source_images,
    plaintext_secrets,
)
