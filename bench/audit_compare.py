"""From parsed facts in memory to findings: 1,000, 10,000 and 100,000 nodes of 60 facts, CPU of one core.

Three fleets of racks of 18: *in step* but for one node in a hundred (a driver not rebooted, another NCCL, a GPU with
other firmware), as a sweep leaves it, where equal nodes share one mapping of facts; the same *unshared*, every node
with a mapping and objects of its own, as if each had been parsed alone; and *without a fleet*, against the majority.
Nodes carry the attributes of a real reading (serials and uuids of every GPU), and all rules are applied. No peer does
this work: a golden-file diff compares one node with a file.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

from bench.rows import Row
from inventory import model
from lockstep.base.names import ComponentName, DomainName, NodeName, PoolName, Slot
from pinsets import canonical, compare, components, normalisers
from pinsets.facts import Coordinate, Fact, Layer, NodeFacts, Snapshot, Version
from pinsets.model import Lock, LockedPin

__all__ = ["FACTS", "fleet", "rows"]

FACTS = 60
RACK = 18
GPUS = 4
NICS = 4
PINS = {
    "os": "ubuntu-24.04",
    "kernel": "6.8.0-1039-nvidia-64k",
    "driver": "580.126.20",
    "cuda": "13.0.2",
    "nccl": "2.28.9",
    "imex": "580.126.20",
    "dcgm": "4.5.2",
    "container-toolkit": "1.19.0",
    "containerd": "2.3.1",
    "kubelet": "1.37.1",
    "kubeadm": "1.37.1",
    "gdrcopy": "2.6",
    "hpcx": "2.25.1",
    "rdma-core": "59.0",
    "libfabric": "2.5.0",
    "firmware.gpu": "97.00.B9.00.69",
    "firmware.nic": "28.47.1026",
    "firmware.bios": "2.04.12",
}
MORE = ("ucx", "runc", "cudnn", "efa", "nvlsm", "doca", "mft", "gdrdrv", "peermem", "nscq", "ofed")
"""Read and not pinned, until there are `FACTS` facts."""


def _lock() -> Lock:
    pins = []
    for name, version in sorted(PINS.items()):
        entry = components.load()[ComponentName(name)]
        pins.append(
            LockedPin(
                component=name,
                layers=entry.layers,
                version=normalisers.normalise(name, version),
                instance=entry.instance,
                activation=entry.activation,
            )
        )
    full = canonical.full("bench", "ubuntu-24.04-arm64", ["bench"], pins, [], [], "0" * 64)
    return Lock(
        pinset="bench",
        os="ubuntu-24.04-arm64",
        sku=("bench",),
        pins=tuple(pins),
        packages=(),
        made_from="0" * 64,
        full=full,
        job=canonical.job(pins),
    )


SKU = model.SkuFile(
    sku="bench",
    accelerator="NVIDIA GB200",
    gpus={f"0008:{index:02x}:00.0": f"gpu{index}" for index in range(GPUS)},
    nics={f"0009:{index:02x}:00.0": f"nic{index}" for index in range(NICS)},
    nvlink="rack",
)


def _values(lock: Lock) -> dict[Coordinate, str]:
    found = {place: pin.version for place, pin in lock.coordinates(SKU.all_slots()).items()}
    for name in MORE:
        for layer in (Layer.PACKAGE, Layer.ONDISK, Layer.LIBRARY):
            if len(found) < FACTS:
                found[Coordinate(ComponentName(name), layer)] = "1.0.0"
    if len(found) != FACTS:
        raise AssertionError(f"{len(found)} facts and not {FACTS}")
    return found


def _facts(values: dict[Coordinate, str], odd: dict[str, str]) -> dict[Coordinate, Fact]:
    """New objects each time, so that nodes share nothing unless they share the mapping."""
    made = {}
    for place, value in values.items():
        at = Coordinate(place.component, place.layer, place.instance)
        seen = odd.get(str(place), value)
        made[at] = Fact(at, Version(seen, seen), "ssh:bench")
    return made


ODD: tuple[dict[str, str], ...] = (
    {"driver@running": "580.105.08"},
    {"nccl@library": "2.27.7"},
    {"firmware.gpu[gpu2]@running": "97.00.C0.00.01"},
)


def _attributes(index: int) -> dict[str, str]:
    rack = index // RACK
    found = {
        "os.id": "ubuntu",
        "gpus": ",".join(f"gpu{gpu}" for gpu in range(GPUS)),
        "gpu.product": "NVIDIA GB200",
        "driver.flavour": "open",
        "fabric.cluster-uuid": f"0f1e2d3c-0000-4000-8000-{rack + 1:012d}",
        "fabric.clique": "32766",
        "fabric.state": "Completed",
        "fabric.status": "Success",
        "nic.count": str(NICS),
        "cpu.vendor": "arm",
        "disk./.used": str(20 + index % 50),
    }
    for gpu in range(GPUS):
        found |= {
            f"gpu.gpu{gpu}.uuid": f"GPU-{index:08d}-{gpu}",
            f"gpu.gpu{gpu}.serial": str(1_650_000_000_000 + index * GPUS + gpu),
            f"gpu.gpu{gpu}.product": "NVIDIA GB200",
            f"gpu.gpu{gpu}.fabric.state": "Completed",
            f"gpu.gpu{gpu}.fabric.status": "Success",
        }
    return found


def fleet(count: int, *, shared: bool) -> tuple[list[compare.Expectation], Snapshot]:
    """``count`` nodes, one in a hundred odd; ``shared``: equal ones hold one mapping of facts."""
    lock = _lock()
    values = _values(lock)
    pool: dict[int, dict[Coordinate, Fact]] = {}
    expectations, nodes = [], {}
    for index in range(count):
        kind = index // 100 % len(ODD) + 1 if index % 100 == 7 else 0
        odd = ODD[kind - 1] if kind else {}
        facts = pool.setdefault(kind, _facts(values, odd)) if shared and kind in pool else _facts(values, odd)
        if shared:
            facts = pool.setdefault(kind, facts)
        name = NodeName(f"gpu-{index + 1:06d}")
        nodes[name] = NodeFacts(name, 1_796_000_000.0, facts, serial=f"SN{index}", attributes=_attributes(index))
        rack = index // RACK
        node = model.Node(name, PoolName("p"), Slot(f"r{rack}-u{index % RACK:02d}"), name, DomainName(f"r{rack}"))
        expectations.append(compare.Expectation(node, SKU, lock))
    return expectations, Snapshot(1_796_000_000.0, nodes)


def rows(quick: bool = False) -> Iterator[Row]:
    """CPU seconds; the least of three up to 10,000 nodes, one run above."""
    # What a process pays once, whatever the fleet: files of the registry and the rules.
    compare.compare(*fleet(RACK, shared=True))
    for count in (1_000,) if quick else (1_000, 10_000, 100_000):
        times = 3 if count <= 10_000 else 1
        given = fleet(count, shared=True)
        yield _row(f"{count} in step", times, compare.compare, *given)
        yield _row(f"{count} no fleet", times, compare.compare_without_fleet, given[1])
        if count <= 10_000:
            # A hundred thousand mappings of sixty facts take gigabytes, which no sweep makes.
            yield _row(f"{count} unshared", times, compare.compare, *fleet(count, shared=False))


def _row(case: str, times: int, work: Callable[..., object], *given: object) -> Row:
    least = float("inf")
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        work(*given)
        least = min(least, time.process_time() - start)
    return Row(case, "cpu", "s", least)
