"""The same probe read from many hosts over real SSH: our transport, OpenSSH, ClusterShell, asyncssh, pyinfra, Ansible.

Every way returns the whole output of the shipped probe (but Ansible setup, which gathers facts of its own), 50 hosts
at once, host keys verified, nothing parsed; what parsing adds is a row of its own. ``cpu`` is the client's alone, with
start-up and child processes; the hosts' own CPU (sshd and the script) is spent on this machine too and bounds the wall
time. The last case puts 40 bad hosts of eight sorts among 200 good ones and reads them as `lockstep audit` does.
Needs root (a network namespace), openssh-server and openssh-client. LOCKSTEP_BENCH_CASES=200,bad picks cases,
LOCKSTEP_BENCH_WAYS=OpenSSH,parsed peers and whether facts are parsed (ours runs each time),
LOCKSTEP_BENCH_DEADLINE=45 the seconds that a host may take in the sweep with bad ones (default: as `lockstep audit`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import audit_ssh_client, audit_ssh_peers, processes
from bench.audit_ssh_site import Site, site
from bench.rows import Row
from lockstep.base import errors, limits

__all__ = ["rows"]

CASES = ("200", "500", "1000", "bad")
QUICK = ("50",)
GOOD, EACH = 200, 5
PARSED = "parsed"
"""Our own way again, with parsing to facts."""


def rows(quick: bool = False) -> Iterator[Row]:
    """Per number of hosts cpu, wall and memory against each peer; then the sweep with bad hosts."""
    given = os.environ.get("LOCKSTEP_BENCH_CASES")
    cases = QUICK if quick else tuple(given.split(",")) if given else CASES
    largest = max([GOOD, *(int(case) for case in cases if case != "bad")])
    with site(_addresses(largest)) as at:
        for case in cases:
            yield from _bad(at) if case == "bad" else _count(at, int(case))


def _count(at: Site, count: int) -> Iterator[Row]:
    hosts = _addresses(count)
    picked = os.environ.get("LOCKSTEP_BENCH_WAYS", ",".join((*audit_ssh_peers.WAYS, PARSED))).split(",")
    ours = _measured(at, "lockstep", _ours(at, hosts), hosts, '{"done":')
    alone = True
    for name, (way, marker) in audit_ssh_peers.WAYS.items():
        command = way(at, hosts) if name in picked else None
        if command is None:
            continue
        try:
            peer = _measured(at, name, command, hosts, marker)
        except errors.EngineError as error:
            print(f"{name} at {count} hosts: {error.message}", file=sys.stderr)
            continue
        alone = False
        per_host = ours.cpu_seconds / count * 1000, peer.cpu_seconds / count * 1000
        yield Row(str(count), "cpu", "ms/host", *per_host, name)
        yield Row(str(count), "wall", "s", ours.wall_seconds, peer.wall_seconds, name)
        yield Row(str(count), "rss", "MB", ours.rss_mb, peer.rss_mb, name)
    if alone:
        yield Row(str(count), "cpu", "ms/host", ours.cpu_seconds / count * 1000)
    if PARSED not in picked:
        return
    whole, _ = _swept(at, hosts, (), audit_ssh_client.PATIENCE.host_seconds)
    yield Row(f"{count}, parsed", "cpu", "ms/host", whole.cpu_seconds / count * 1000)
    yield Row(f"{count}, parsed", "wall", "s", whole.wall_seconds)


def _addresses(count: int) -> list[str]:
    return [f"127.1.{index // 250}.{index % 250 + 1}" for index in range(count)]


def _ours(at: Site, hosts: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "bench.audit_ssh_client", str(at.folder), *hosts]


def _measured(at: Site, name: str, command: Sequence[str], hosts: Sequence[str], marker: str) -> processes.Measured:
    """Run it and count the answers; one missing is an error, not a figure."""
    out = at.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    done = processes.measure([*at.enter, *command], allowed=(0, 1))
    text = done.output + b"".join(path.read_bytes() for path in out.iterdir())
    answers = text.count(marker.encode())
    if answers != len(hosts):
        last = done.errors.decode(errors="replace").strip().splitlines()[-3:]
        raise errors.EngineError(f"{name} brought {answers} answers of {len(hosts)}: {' / '.join(last)}")
    return done


def _swept(
    at: Site, good: Sequence[str], bad: Sequence[str], deadline: float
) -> tuple[processes.Measured, dict[str, float]]:
    words = [sys.executable, "-m", "bench.audit_ssh_sweep", str(at.folder), str(deadline), *good, "--", *bad]
    done = processes.measure([*at.enter, *words])
    told: dict[str, float] = json.loads(done.output)
    if told["lost"] and not bad:
        raise errors.EngineError(f"the sweep lost {told['lost']:.0f} hosts")
    return done, told


def _deadline() -> float:
    return float(os.environ.get("LOCKSTEP_BENCH_DEADLINE", limits.HOST_DEADLINE_SECONDS))


def _bad(at: Site) -> Iterator[Row]:
    """Times against the deadline, a host's and that of the first pass as a whole, which it may outlast by a second."""
    case = f"{GOOD + 8 * EACH} with {8 * EACH} bad"
    with _bad_hosts(at) as bad:
        done, told = _swept(at, _addresses(GOOD), bad, _deadline())
    print(f"{case}: {told}", file=sys.stderr)
    yield Row(f"{case}: first pass, deadline {_deadline():.0f} s", "wall", "s", told["first"])
    yield Row(f"{case}: last good host", "wall", "s", told["last_good"])
    yield Row(f"{case}: good hosts of the second pass", "count", "1", told["good_second"])
    yield Row(f"{case}: good hosts lost", "count", "1", told["lost"])
    yield Row(f"{case}: second pass", "wall", "s", told["second"])
    yield Row(f"{case}: client", "cpu", "s", done.cpu_seconds)


@contextlib.contextmanager
def _bad_hosts(at: Site) -> Iterator[list[str]]:
    """``ADDRESS:PORT`` of the bad ones; known_hosts knows those that show a key."""
    ready = at.folder / "bad.json"
    ready.unlink(missing_ok=True)
    words = ["setpriv", "--pdeathsig", "TERM", *at.enter, sys.executable, "-m", "bench.audit_ssh_bad"]
    server = subprocess.Popen([*words, str(at.folder), str(EACH)], start_new_session=True)
    try:
        for _ in range(100):
            if ready.exists() or server.poll() is not None:
                break
            time.sleep(0.1)
        if not ready.exists():
            raise errors.EngineError("the bad hosts did not come up")
        yield json.loads(Path(ready).read_text())
    finally:
        server.terminate()
        server.wait()
