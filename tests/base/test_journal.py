"""The journal: private, shared by processes, honest about who holds what."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from lockstep.base import errors, journal, settings
from tests.base import postgres


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[postgres.Server]:
    with postgres.serving(tmp_path_factory.mktemp("postgresql")) as server:
        yield server


@pytest.fixture(params=["file", pytest.param("postgresql", marks=pytest.mark.debian)])
def anywhere(request: pytest.FixtureRequest, place: Path) -> Path | str:
    """A journal that does not exist yet: a file, and a database of a real server."""
    return place if request.param == "file" else request.getfixturevalue("postgresql").fresh()


@pytest.fixture
def book(anywhere: Path | str) -> Iterator[journal.Journal]:
    with journal.Journal(anywhere, "lab") as opened:
        yield opened


def test_the_file_and_its_folder_are_private_even_under_a_loose_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with journal.Journal(tmp_path / "state" / "journal.db", "lab") as book:
            book.see_pool("blackwell", ["gpu-001"])
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in (tmp_path / "state").iterdir()}
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}, modes


def test_a_reader_leaves_no_file_behind(tmp_path: Path) -> None:
    found = settings.load({"LOCKSTEP_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}, tmp_path)
    assert journal.open_if_there(found, "lab") is None
    assert not (tmp_path / "state").exists()
    with journal.open_for(found, "lab") as book:
        book.record_generation("r1-u01", 2)
    again = journal.open_if_there(found, "lab")
    assert again is not None
    with again:
        assert again.generation("r1-u01") == 2


def test_two_fleets_with_equal_node_names_do_not_see_each_other(anywhere: Path | str, book: journal.Journal) -> None:
    book.assign("gpu-001", "S1", "a" * 64, "j", None)
    book.leases.take(["gpu-001"], "bringup")
    with journal.Journal(anywhere, "other") as other:
        assert other.assignments() == {}
        assert other.leases.take(["gpu-001"], "bringup")["gpu-001"].token == 1


def test_what_was_written_is_read_back_as_values(book: journal.Journal) -> None:
    book.keep_lock("f" * 64, "job", '{"a": 1}')
    book.keep_lock("f" * 64, "job", "something else: the first text under a digest stays")
    assert book.lock_text("f" * 64) == '{"a": 1}'
    assert book.lock_text("0" * 64) is None
    book.assign("gpu-001", "S1", "a" * 64, "j", None)
    book.assign("gpu-001", "S2", "b" * 64, "j", "a" * 64)
    assert book.assignments()["gpu-001"].serial == "S2"
    found = book.assignment("gpu-001", "S1")
    assert found is not None
    assert (found.lock, found.previous) == ("a" * 64, None)
    admission = journal.Admission("gpu-001", "u01", "S1", 1, "a" * 64, "j", {"driver@running": "580"}, "none", 5.0)
    book.admit(admission)
    assert book.admissions() == {"gpu-001": admission}
    assert book.last_admission("u01", before_generation=2) == admission
    assert book.last_admission("u01", before_generation=1) is None
    book.pin_host_keys("gpu-001", 1, ["ssh-ed25519 AAAA"], "known_hosts")
    book.pin_host_keys("gpu-001", 2, ["ssh-ed25519 BBBB"], "reimage")
    keys = book.host_keys("gpu-001")
    assert keys is not None
    assert (keys.generation, keys.keys, keys.origin) == (2, ("ssh-ed25519 BBBB",), "reimage")
    book.fence("gpu-001", journal.FenceKind.VACATING, "reboot")
    assert book.fences()["gpu-001"].kind is journal.FenceKind.VACATING
    book.unfence("gpu-001")
    assert book.fences() == {}
    assert book.findings_seen("p") is None
    book.see_findings("p", {"gpu-001 driver@running=580.126.20"})
    assert book.findings_seen("p") == {"gpu-001 driver@running=580.126.20"}


def test_a_stage_that_never_ended_is_told_from_one_that_did(book: journal.Journal) -> None:
    run = book.runs.begin("bringup", "blackwell")
    first = book.runs.start_stage(run, "gpu-001", "S1", 1, "driver", "a" * 64, "boot-1")
    book.runs.end_stage(first, journal.AttemptOutcome.DONE, boot_id="boot-2")
    open_ = book.runs.start_stage(run, "gpu-002", "S2", 1, "driver", "a" * 64, "boot-1")
    assert {node: attempt.id for node, attempt in book.runs.interrupted().items()} == {"gpu-002": open_}
    assert [(a.node, a.outcome, a.boot_after) for a in book.runs.attempts("gpu-001")] == [
        ("gpu-001", journal.AttemptOutcome.DONE, "boot-2")
    ]


def test_a_replacement_is_gone_on_with_until_it_is_closed(book: journal.Journal) -> None:
    first = book.runs.begin_replacement("gpu-001", "u01", 2)
    book.runs.step_done(first.id, "powered-off", {"state": "off"})
    book.runs.step_done(first.id, "powered-off", {"state": "a second record changes nothing"})
    again = book.runs.begin_replacement("gpu-001", "u01", 3)
    assert (again.id, again.generation) == (first.id, 2)
    step = again.step("powered-off")
    assert step is not None
    assert step.detail == {"state": "off"}
    assert again.step("reimaged") is None
    assert book.runs.end_replacement(first.id) >= 0
    assert book.runs.open_replacement("u01") is None
    assert book.runs.begin_replacement("gpu-001", "u01", 3).id != first.id


def test_a_living_holder_refuses_others_by_name_and_its_own_process_too(book: journal.Journal) -> None:
    book.leases.take(["gpu-001"], "bringup of pool blackwell")
    with pytest.raises(errors.BusyError) as refusal:
        book.leases.take(["gpu-001", "gpu-002"], "replace")
    assert f"process {os.getpid()}" in refusal.value.message
    assert "bringup of pool blackwell" in refusal.value.message
    assert book.leases.holder("gpu-002") is None, "all or none"


def test_the_token_grows_with_every_taker_and_a_late_holder_is_told(book: journal.Journal) -> None:
    first = book.leases.take(["gpu-001"], "one", seconds=-1)["gpu-001"]
    second = book.leases.take(["gpu-001"], "two")["gpu-001"]
    assert second.token == first.token + 1
    with pytest.raises(errors.BusyError):
        book.leases.renew([first])
    book.leases.release([first])
    holder = book.leases.holder("gpu-001")
    assert holder is not None
    assert holder.token == second.token
    book.leases.release([second])
    assert book.leases.take(["gpu-001"], "three")["gpu-001"].token == second.token + 1


def test_an_unexpired_lease_from_another_host_refuses_and_an_expired_one_does_not(
    anywhere: Path | str, book: journal.Journal
) -> None:
    lease = book.leases.take(["gpu-001"], "bringup", seconds=1000)["gpu-001"]
    _edit_owner(
        anywhere, {'"host": "': '"host": "elsewhere-', f'"boot_id": "{lease.owner.boot_id}"': '"boot_id": "other"'}
    )
    with pytest.raises(errors.BusyError, match="elsewhere"):
        book.leases.take(["gpu-001"], "mine")
    _sql(anywhere, "UPDATE leases SET expires = :then", then=time.time() - 1)
    assert book.leases.take(["gpu-001"], "mine")["gpu-001"].token == lease.token + 1


def test_an_owner_from_before_a_reboot_of_this_host_is_dead(anywhere: Path | str, book: journal.Journal) -> None:
    lease = book.leases.take(["gpu-001"], "bringup", seconds=1000)["gpu-001"]
    if not lease.owner.machine:
        pytest.skip("this host has no /etc/machine-id")
    _edit_owner(anywhere, {f'"boot_id": "{lease.owner.boot_id}"': '"boot_id": "an-earlier-boot"'})
    assert book.leases.take(["gpu-001"], "mine")["gpu-001"].token == lease.token + 1


def _sql(place: Path | str, text: str, **values: object) -> object:
    """One statement behind the journal's back; the first value of what it answers."""
    engine = sqlalchemy.create_engine(f"sqlite:///{place}" if isinstance(place, Path) else place)
    try:
        with engine.begin() as connection:
            result = connection.execute(sqlalchemy.text(text), values)
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def _edit_owner(place: Path | str, changes: dict[str, str]) -> None:
    text = str(_sql(place, "SELECT owner FROM leases"))
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    _sql(place, "UPDATE leases SET owner = :owner", owner=text)


_HOLDER = """
import sys, time
from pathlib import Path
from lockstep.base import journal
place = sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1])
with journal.Journal(place, "lab") as book, book.leases.holding(["gpu-001"], "a run that dies"):
    print("holding", flush=True)
    time.sleep(60)
"""


def test_a_killed_owner_on_this_host_is_replaced_at_once(anywhere: Path | str, book: journal.Journal) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(anywhere)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with pytest.raises(errors.BusyError, match="a run that dies"):
            book.leases.take(["gpu-001"], "the next run")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert book.leases.take(["gpu-001"], "the next run")["gpu-001"].token == 2
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()


def _count_up(place: Path | str, times: int) -> None:
    with journal.Journal(place, "lab") as book:
        for number in range(times):
            run = book.runs.begin("bringup", f"pool-{os.getpid()}")
            book.runs.start_stage(run, f"gpu-{number}", "S", 1, "driver", "a", None)


def test_processes_that_open_and_write_a_new_journal_at_once_lose_nothing(anywhere: Path | str) -> None:
    start = multiprocessing.get_context("spawn")
    workers = [start.Process(target=_count_up, args=(anywhere, 20)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with journal.Journal(anywhere, "lab") as book:
        attempts = book.runs.attempts()
    assert len(attempts) == 60
    assert len({attempt.run for attempt in attempts}) == 60


def test_leases_are_renewed_while_held_and_freed_at_the_end(book: journal.Journal) -> None:
    with book.leases.holding(["gpu-001"], "bringup", seconds=0.3) as held:
        first = book.leases.holder("gpu-001")
        time.sleep(0.5)
        held.check()
        later = book.leases.holder("gpu-001")
        assert first is not None
        assert later is not None
        assert later.expires > first.expires
    assert book.leases.holder("gpu-001") is None


def test_a_journal_of_a_newer_program_is_refused(anywhere: Path | str, book: journal.Journal) -> None:
    _sql(anywhere, "UPDATE meta SET value = '999' WHERE name = 'schema'")
    with pytest.raises(errors.RefusedError, match="schema 999"):
        journal.Journal(anywhere, "lab")


def test_a_file_that_is_no_database_is_an_error_with_a_remedy(place: Path) -> None:
    place.parent.mkdir(mode=0o700)
    place.write_text("this is not a database, however long it is; " * 50)
    with pytest.raises(errors.EngineError) as error:
        journal.Journal(place, "lab")
    assert error.value.place == str(place)
    assert error.value.hint


def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(errors.EngineError) as error:
        journal.Journal(f"postgresql://lockstep:{postgres.PASSWORD}@/journal?host={tmp_path}", "lab")
    assert "postgresql://lockstep:***@" in str(error.value.place)
    assert "LOCKSTEP_JOURNAL" in str(error.value.hint)
    assert postgres.PASSWORD not in error.value.diagnostics()


def test_a_wrong_password_is_told_and_not_shown(postgresql: postgres.Server) -> None:
    with pytest.raises(errors.EngineError, match="password authentication failed") as error:
        journal.Journal(postgresql.url("postgres", "another-secret"), "lab")
    assert "another-secret" not in error.value.diagnostics()


@pytest.mark.parametrize("url", ["ftp://somewhere/x", "postgresql+nothing://x/y", "://", "postgresql://x:notaport/y"])
def test_a_text_that_is_no_database_url_is_bad_input(url: str) -> None:
    with pytest.raises(errors.InputError) as error:
        journal.Journal(url, "lab")
    assert error.value.place == "LOCKSTEP_JOURNAL"
