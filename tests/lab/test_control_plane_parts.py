"""Records of processes, ports and credentials of a lab's control plane; no control plane needed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import control_plane_credentials as credentials
from lab import control_plane_ports as ports
from lab import control_plane_processes as processes
from lockstep.base import errors

ENVIRON = {"PATH": os.defpath}


def spawn(folder: Path, *argv: str) -> processes.Record:
    return processes.spawn(
        argv, record=folder / "record", log=folder / "log", environ=ENVIRON, fingerprint="what it is"
    )


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_started_program_is_recognised_by_its_record_and_ended(tmp_path: Path) -> None:
    record = spawn(tmp_path, "sleep", "600")
    assert processes.lives(record)
    assert processes.read(tmp_path / "record") == record
    assert record.fingerprint == "what it is"
    processes.end(record)
    assert not processes.lives(record)


def test_a_program_that_ignores_term_is_killed(tmp_path: Path) -> None:
    record = spawn(tmp_path, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    until(lambda: "ready" in (tmp_path / "log").read_text())
    processes.end(record, seconds=0.2)
    assert not processes.lives(record)


def test_another_process_under_the_same_pid_is_not_taken_for_ours(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        started = processes.start_time(other.pid)
        assert started is not None
        stranger = processes.Record(other.pid, started - 1, "")
        assert not processes.lives(stranger)
        processes.end(stranger)
        assert other.poll() is None
        other.kill()


def test_a_record_half_written_or_from_before_the_last_boot_counts_as_none(tmp_path: Path) -> None:
    record = tmp_path / "record"
    assert processes.read(record) is None
    record.write_text("")
    assert processes.read(record) is None
    stat_line = Path("/proc/self/stat").read_text()
    record.write_text(f"00000000-0000-0000-0000-000000000000\n{stat_line}fingerprint\n")
    assert processes.read(record) is None


def test_a_program_that_ends_at_once_is_seen_to_have_ended(tmp_path: Path) -> None:
    record = spawn(tmp_path, "sh", "-c", "echo reason >&2; exit 3")
    until(lambda: not processes.lives(record))
    processes.end(record)
    assert processes.last_lines(tmp_path / "log") == "reason"
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_ports_are_chosen_once_and_differ(tmp_path: Path) -> None:
    first = ports.choose(tmp_path, ("a", "b"))
    assert len(set(first.values())) == 2
    assert ports.choose(tmp_path, ("a", "b")) == first
    more = ports.choose(tmp_path, ("a", "b", "c"))
    assert {name: more[name] for name in first} == first
    assert more["c"] not in first.values()


def test_a_port_in_use_is_not_chosen_and_its_holder_is_named(tmp_path: Path) -> None:
    (wanted,) = ports.choose(tmp_path, ("a",)).values()
    (tmp_path / "ports.json").unlink()
    with socket.socket() as taken:
        taken.bind((ports.HOST, wanted))
        taken.listen()
        assert ports.choose(tmp_path, ("a",))["a"] != wanted
        with pytest.raises(errors.BusyError, match=rf"{wanted} of etcd is taken by pid {os.getpid()} \(") as caught:
            ports.ensure_free("etcd", wanted)
        assert caught.value.hint is not None
    ports.ensure_free("etcd", wanted)


def test_tokens_are_kept_over_starts_and_withdrawn_with_their_node(tmp_path: Path) -> None:
    first = credentials.ensure_tokens(tmp_path, credentials.users(["gpu-001", "gpu-002"]))
    again = credentials.ensure_tokens(tmp_path, credentials.users(["gpu-002", "gpu-003"]))
    assert again["system:node:gpu-002"] == first["system:node:gpu-002"]
    assert "system:node:gpu-001" not in again
    assert credentials.read_tokens(tmp_path) == again
    assert len({token.get_secret_value() for token in again.values()}) == len(again)


def test_every_credential_is_private_and_no_representation_shows_it(tmp_path: Path) -> None:
    tokens = credentials.ensure_tokens(tmp_path, credentials.users(["gpu-001"]))
    pki = credentials.ensure_pki(tmp_path)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in found} >= {"tokens.csv", "ca.crt", "ca.key", "api.key", "service-accounts.key"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    assert stat.S_IMODE(pki.folder.stat().st_mode) == 0o700
    assert not any(token.get_secret_value() in repr(tokens) for token in tokens.values())


def test_certificates_are_made_once_and_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "pki.new").mkdir()
    (tmp_path / "pki.new" / "ca.crt").write_text("left by a killed run")
    first = credentials.ensure_pki(tmp_path).authority.read_text()
    assert "BEGIN CERTIFICATE" in first
    assert credentials.ensure_pki(tmp_path).authority.read_text() == first
    assert not (tmp_path / "pki.new").exists()
