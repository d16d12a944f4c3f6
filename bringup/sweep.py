"""Many nodes at once: bounded, shuffled, one hard deadline per host, what is known kept when it is stopped.

The first pass has a deadline as a whole: that of a host, counted from the start of the pass (`Pace`). Bad hosts end it
no later; a site that good ones take longer to read goes on for them, and hosts that are slower than every good one are
given up. A second pass tries only the failures that may heal, fewer at a time and with doubled deadlines: a site that
is busy serving the first pass loses hosts to time-outs that are not dead.
"""

from __future__ import annotations

import collections
import concurrent.futures
import queue
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

__all__ = ["Pace", "Progress", "Request", "Swept", "read"]

_CUT_SECONDS = 0.5
"""How long a host that was given up may take to hand over what has come of it."""


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


@dataclass(slots=True)
class Pace:
    """When a host is given up in the first pass. Times are seconds since the start of the pass.

    Until ``deadline`` none is. From then on each is waited for no longer than the slowest good host has taken, and no
    longer than good ones go on to answer: after the last of them, and after its own begin, as long as there has ever
    been to wait for the next, and no less than a connect. Where none has answered until the deadline, nothing that
    runs is waited for and nothing more is started.
    """

    deadline: float
    connect: float
    slowest: float = 0.0
    """Seconds that the slowest good host has taken."""
    last: float = 0.0
    """When the last good one answered."""
    lull: float = 0.0
    """The longest time without an answer of a good one that was followed by one."""

    def answered(self, now: float, seconds: float) -> None:
        """A good host has, after so long."""
        self.slowest = max(self.slowest, seconds)
        self.lull = max(self.lull, now - self.last)
        self.last = now

    def given_up(self, began: float) -> float:
        """When one that began then is given up, as far as is known now."""
        if not self.slowest:
            return self.deadline
        patience = began + max(self.slowest, self.connect)
        return max(self.deadline, min(patience, max(self.last, began) + max(self.lull, self.connect)))

    def starts(self, now: float) -> bool:
        """Whether further hosts are begun."""
        return now < self.deadline or self.slowest > 0


_Result = tuple[Failure | None, bool, NodeFacts]


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
        self.interrupted = False
        self._started = time.time()

    def run(self, requests: Sequence[Request], patience: Patience, threads: int, *, second_pass: bool) -> None:
        """One pass."""
        if not requests:
            return
        script = probe.script(self._components, patience, deep=self._deep)
        pace = None if second_pass else Pace(patience.host_seconds, patience.connect_seconds)
        total = len(requests) if second_pass else self._total
        workers = concurrent.futures.ThreadPoolExecutor(min(threads, len(requests)), thread_name_prefix="sweep")
        try:
            given = _Pass(requests, lambda one: self._one(one, script, patience), workers, threads, pace)
            for done, (node, (failure, complete, facts)) in enumerate(given.results(self._transport), start=1):
                self._keep(node, facts, failure, complete, second_pass)
                if self._progress is not None:
                    self._progress(Progress(done, total, node, failure, second_pass))
        except BaseException:
            # Running threads end at once, since their sockets are closed under them.
            workers.shutdown(wait=False, cancel_futures=True)
            self._transport.close()
            raise
        # One that was given up while it connected ends by its own time-out; what it says is not waited for.
        workers.shutdown(wait=False)

    def _one(self, request: Request, script: str, patience: Patience) -> _Result:
        target = request.target
        answer = self._transport.run(target, script, patience)
        now = time.time()
        if isinstance(answer, Failure):
            return answer, False, node_parser.unreachable(target.node, str(answer), now)
        return self._parsed(request, answer, now)

    def _parsed(self, request: Request, answer: Outcome, now: float) -> _Result:
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


class _Pass:
    """The hosts of one pass: so many at once, given up by the pace (None: only by their own deadlines)."""

    def __init__(
        self,
        requests: Sequence[Request],
        one: Callable[[Request], _Result],
        workers: concurrent.futures.Executor,
        threads: int,
        pace: Pace | None,
    ) -> None:
        self._waiting = collections.deque(requests)
        self._one = one
        self._workers = workers
        self._threads = threads
        self._pace = pace
        self._began: dict[NodeName, float] = {}
        self._cut: dict[NodeName, float] = {}
        self._answers: queue.SimpleQueue[tuple[NodeName, _Result | BaseException]] = queue.SimpleQueue()
        self._start = time.monotonic()

    def results(self, transport: Transport) -> Iterator[tuple[NodeName, _Result]]:
        """Each host once, as it ends."""
        while self._waiting or self._began:
            self._begin()
            now = self._now()
            if self._pace is not None and self._waiting and not self._pace.starts(now):
                node = self._waiting.popleft().target.node
                yield node, _unheard(node, "not reached before the first pass ended: no host answered in time")
                continue
            try:
                node, result = self._answers.get(timeout=self._until_look(now))
            except queue.Empty:
                yield from self._give_up(transport)
                continue
            began = self._began.pop(node, None)
            if began is None:
                continue  # given up, and told already
            if isinstance(result, BaseException):
                raise result
            now = self._now()
            if result[0] is None and node not in self._cut and self._pace is not None:
                self._pace.answered(now, now - began)
            if result[0] is not None and node in self._cut:
                result = _unheard(node, f"gave no answer in {now - began:.0f} s, when the first pass ended")
            yield node, result

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _begin(self) -> None:
        while (
            self._waiting
            and len(self._began) < self._threads
            and (self._pace is None or self._pace.starts(self._now()))
        ):
            request = self._waiting.popleft()
            self._began[request.target.node] = self._now()
            self._workers.submit(self._work, request)

    def _work(self, request: Request) -> None:
        try:
            self._answers.put((request.target.node, self._one(request)))
        except BaseException as error:  # noqa: BLE001 - raised again where the results are read
            self._answers.put((request.target.node, error))

    def _until_look(self, now: float) -> float | None:
        """Seconds until the next host may have to be given up."""
        if self._pace is None or not self._began:
            return None
        times = [self._cut.get(node, self._pace.given_up(began)) for node, began in self._began.items()]
        return max(min(times) - now, 0.01)

    def _give_up(self, transport: Transport) -> Iterator[tuple[NodeName, _Result]]:
        now = self._now()
        for node, began in list(self._began.items()):
            if node in self._cut:
                if now >= self._cut[node]:
                    del self._began[node]
                    yield node, _unheard(node, f"gave no answer in {now - began:.0f} s, when the first pass ended")
            elif self._pace is not None and now >= self._pace.given_up(began):
                self._cut[node] = now + _CUT_SECONDS
                transport.cut(node)


def _unheard(node: NodeName, reason: str) -> _Result:
    failure = Failure(FailureKind.HUNG, reason)
    return failure, False, node_parser.unreachable(node, str(failure), time.time())


def failures_by_kind(failures: Mapping[NodeName, Failure]) -> Iterator[tuple[FailureKind, list[NodeName]]]:
    """Nodes per class, in the order of the classes."""
    for kind in FailureKind:
        nodes = sorted(node for node, failure in failures.items() if failure.kind is kind)
        if nodes:
            yield kind, nodes
