"""Many nodes at once: bounded, shuffled, one hard deadline per host, what is known kept when it is stopped.

A second pass tries only the failures that may heal, fewer at a time and with doubled deadlines: a site that is busy
serving the first pass loses hosts to time-outs that are not dead.
"""

from __future__ import annotations

import concurrent.futures
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bringup import probe
from bringup.parsers import node as node_parser
from bringup.parsers import records
from bringup.transport.base import Failure, FailureKind, Outcome, Patience, Target, Transport
from inventory.model import Sku
from lockstep.base import limits
from lockstep.base.names import ComponentName, NodeName
from pinsets.facts import Coordinate, Fact, NodeFacts, Snapshot
from pinsets.model import Component

__all__ = ["Progress", "Request", "Swept", "read"]


@dataclass(frozen=True, slots=True)
class Request:
    """One node to read, and what its GPUs are called."""

    target: Target
    sku: Sku | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after every node of either pass."""

    done: int
    total: int
    node: NodeName
    failure: Failure | None
    second_pass: bool


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep knows."""

    snapshot: Snapshot
    """Every node asked for that was tried; one that was not tried has no entry."""
    failures: Mapping[NodeName, Failure]
    """Class, reason and remedy of the nodes that gave no answer."""
    second_pass: tuple[NodeName, ...]
    """Nodes that answered only when they were tried again."""
    interrupted: bool


def read(
    requests: Sequence[Request],
    transport: Transport,
    components: Mapping[ComponentName, Component],
    *,
    patience: Patience | None = None,
    progress: Callable[[Progress], None] | None = None,
    concurrency: int = limits.SWEEP_CONCURRENCY,
    shuffle: Callable[[list[Request]], None] = random.shuffle,
    deep: bool = False,
) -> Swept:
    """Read all of ``requests``. A `KeyboardInterrupt` ends it early and is told in the result, not raised.

    ``progress`` is called in the calling thread; ``concurrency`` is the number of hosts asked at once;
    ``deep`` also runs the heavy vendor tools.
    """
    work = _Sweep(transport, components, progress, len(requests), deep)
    first = patience or Patience()
    order = list(requests)
    # Neighbours share switches and power: asked in file order, one dead rack would fill every slot at once.
    shuffle(order)
    try:
        work.run(order, first, concurrency, second_pass=False)
        again = [request for request in order if work.may_heal(request.target.node)]
        work.run(again, first.times(2), limits.SECOND_PASS_CONCURRENCY, second_pass=True)
    except KeyboardInterrupt:
        work.interrupted = True
    finally:
        transport.close()
    return work.result()


class _Sweep:
    def __init__(
        self,
        transport: Transport,
        components: Mapping[ComponentName, Component],
        progress: Callable[[Progress], None] | None,
        total: int,
        deep: bool,
    ) -> None:
        self._deep = deep
        self._transport = transport
        self._components = components
        self._progress = progress
        self._total = total
        self._facts: dict[NodeName, NodeFacts] = {}
        self._failures: dict[NodeName, Failure] = {}
        self._cut: set[NodeName] = set()
        self._second: list[NodeName] = []
        self._pool: dict[tuple[Fact, ...], Mapping[Coordinate, Fact]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.interrupted = False
        self._started = time.time()

    def run(self, requests: Sequence[Request], patience: Patience, threads: int, *, second_pass: bool) -> None:
        """One pass."""
        if not requests:
            return
        script = probe.script(self._components, patience, deep=self._deep)
        workers = concurrent.futures.ThreadPoolExecutor(min(threads, len(requests)), thread_name_prefix="sweep")
        try:
            futures = {workers.submit(self._one, request, script, patience): request for request in requests}
            for done, future in enumerate(concurrent.futures.as_completed(futures), start=1):
                node = futures[future].target.node
                failure, complete, facts = future.result()
                self._keep(node, facts, failure, complete, second_pass)
                if self._progress is not None:
                    total = len(requests) if second_pass else self._total
                    self._progress(Progress(done, total, node, failure, second_pass))
        except BaseException:
            # Running threads end at once, since their sockets are closed under them.
            self._stopped.set()
            workers.shutdown(wait=False, cancel_futures=True)
            self._transport.close()
            raise
        workers.shutdown()

    def _one(self, request: Request, script: str, patience: Patience) -> tuple[Failure | None, bool, NodeFacts]:
        target = request.target
        answer = self._transport.run(target, script, patience)
        now = time.time()
        if isinstance(answer, Failure):
            return answer, False, node_parser.unreachable(target.node, str(answer), now)
        return self._parsed(request, answer, now)

    def _parsed(self, request: Request, answer: Outcome, now: float) -> tuple[Failure | None, bool, NodeFacts]:
        taken = records.read(answer.stdout)
        node = request.target.node
        if taken.problem is not None:
            said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
            reason = f"{taken.problem}; it said {said[-1][:200]!r}" if said else taken.problem
            remedy = "the login shell must run `sh -s` and print nothing of its own"
            failure = Failure(FailureKind.BAD_OUTPUT, reason, answer.seconds, remedy)
            return failure, False, node_parser.unreachable(node, str(failure), now)
        facts = node_parser.facts(node, taken, self._components, sku=request.sku, observed_at=now)
        with self._lock:
            return None, taken.complete, node_parser.interned(facts, self._pool)

    def _keep(
        self, node: NodeName, facts: NodeFacts, failure: Failure | None, complete: bool, second_pass: bool
    ) -> None:
        if second_pass and failure is not None and node in self._cut:
            # The first pass had a part of it; a part is more than nothing.
            return
        if second_pass and failure is None:
            self._second.append(node)
        self._facts[node] = facts
        self._cut.discard(node)
        if failure is not None:
            self._failures[node] = failure
            return
        self._failures.pop(node, None)
        if not complete:
            self._cut.add(node)

    def may_heal(self, node: NodeName) -> bool:
        """Whether the node is worth a second try: no answer for a reason that passes, or half an answer."""
        failure = self._failures.get(node)
        return node in self._cut or (failure is not None and failure.kind.may_heal)

    def result(self) -> Swept:
        """What is known now."""
        return Swept(
            Snapshot(self._started, dict(sorted(self._facts.items()))),
            dict(self._failures),
            tuple(sorted(self._second)),
            self.interrupted,
        )


def failures_by_kind(failures: Mapping[NodeName, Failure]) -> Iterator[tuple[FailureKind, list[NodeName]]]:
    """Nodes per class, in the order of the classes."""
    for kind in FailureKind:
        nodes = sorted(node for node, failure in failures.items() if failure.kind is kind)
        if nodes:
            yield kind, nodes
