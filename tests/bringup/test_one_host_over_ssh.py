"""paramiko against a real sshd: the script runs, host keys are verified, every failure has its class."""

from __future__ import annotations

from pathlib import Path

import pytest

from bringup.transport.base import Failure, FailureKind, Identity, Outcome, Patience
from bringup.transport.ssh import Ssh
from tests.bringup import servers
from tests.bringup.servers import BadHosts, Keys, Sshd

QUICK = Patience(connect_seconds=1, login_seconds=2, script_seconds=2, command_seconds=1, host_seconds=4)


def _failure(answer: Outcome | Failure) -> Failure:
    assert isinstance(answer, Failure), answer
    return answer


def test_the_script_runs_and_its_output_status_and_errors_come_back(sshd: Sshd) -> None:
    answer = Ssh().run(sshd.target(), "echo out; echo err >&2; exit 3\n", Patience())
    assert isinstance(answer, Outcome)
    assert (answer.stdout, answer.stderr, answer.status) == (b"out\n", b"err\n", 3)


def test_a_large_script_and_a_large_answer_arrive_whole(sshd: Sshd) -> None:
    script = (
        "# padding\n" * 100_000
        + "i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done\n"
    )
    answer = Ssh().run(sshd.target(), script, Patience())
    assert isinstance(answer, Outcome)
    assert len(answer.stdout) == 20_000 * 41


def test_a_node_that_floods_is_bad_output(sshd: Sshd) -> None:
    answer = _failure(Ssh().run(sshd.target(), "cat /dev/zero\n", Patience()))
    assert answer.kind is FailureKind.BAD_OUTPUT


def test_an_unknown_host_key_is_refused_with_fingerprint_and_remedy(sshd: Sshd) -> None:
    answer = _failure(Ssh().run(sshd.target(host_keys=()), "touch /dev/shm/must-not-run\n", Patience()))
    assert answer.kind is FailureKind.HOST_KEY_UNKNOWN
    assert "SHA256:" in answer.reason
    assert "gpu-001" in answer.reason
    assert "ssh-keyscan" in answer.remedy
    assert not Path("/dev/shm/must-not-run").exists()


def test_a_changed_host_key_is_refused_and_named_with_both_fingerprints(sshd: Sshd, keys: Keys) -> None:
    answer = _failure(Ssh().run(sshd.target(host_keys=(keys.public("other"),)), "echo\n", Patience()))
    assert answer.kind is FailureKind.HOST_KEY_CHANGED
    assert answer.reason.count("SHA256:") == 2
    assert "lockstep replace" in answer.remedy


def test_a_second_host_key_of_another_type_is_no_change(keys: Keys, tmp_path: Path) -> None:
    import subprocess

    rsa = tmp_path / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(rsa)], check=True)
    known = " ".join(rsa.with_suffix(".pub").read_text().split()[:2])
    with servers.sshd(keys, tmp_path, f"HostKey {rsa}") as server:
        answer = Ssh().run(server.target(host_keys=(known,)), "echo ok\n", Patience())
        assert isinstance(answer, Outcome), answer


def test_a_wrong_key_and_a_wrong_user_are_authentication_failures(sshd: Sshd, keys: Keys) -> None:
    wrong_key = Ssh().run(sshd.target(identities=(Identity(str(keys.other)),)), "echo\n", Patience())
    wrong_user = Ssh().run(sshd.target(user="nobody"), "echo\n", Patience())
    no_key = Ssh().run(sshd.target(identities=()), "echo\n", Patience())
    assert [_failure(one).kind for one in (wrong_key, wrong_user, no_key)] == [FailureKind.AUTH] * 3


def test_the_right_key_is_found_behind_wrong_ones(sshd: Sshd, keys: Keys) -> None:
    identities = (Identity(str(keys.other)), Identity("/nonexistent/key"), Identity(str(keys.user)))
    assert isinstance(Ssh().run(sshd.target(identities=identities), "echo\n", Patience()), Outcome)


def test_a_key_given_as_text_works_and_is_not_shown(sshd: Sshd, keys: Keys) -> None:
    identity = Identity(text=keys.user.read_text())
    assert "PRIVATE" not in repr(sshd.target(identities=(identity,)))
    assert isinstance(Ssh().run(sshd.target(identities=(identity,)), "echo\n", Patience()), Outcome)


def test_an_encrypted_key_says_to_use_an_agent(sshd: Sshd, tmp_path: Path) -> None:
    import subprocess

    path = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(path)], check=True)
    answer = _failure(Ssh().run(sshd.target(identities=(Identity(str(path)),)), "echo\n", Patience()))
    assert answer.kind is FailureKind.AUTH
    assert "agent" in answer.reason


@pytest.mark.parametrize(
    ("sort", "kinds"),
    [
        ("no_banner", {FailureKind.NO_BANNER}),
        ("banner_then_silence", {FailureKind.HUNG}),
        ("line_per_second", {FailureKind.NO_BANNER}),
        ("accepts_and_closes", {FailureKind.NO_BANNER, FailureKind.CLOSED}),
        ("closed_port", {FailureKind.REFUSED}),
        ("black_hole", {FailureKind.NO_ROUTE}),
    ],
)
def test_a_bad_host_ends_with_its_class(sshd: Sshd, bad_hosts: BadHosts, sort: str, kinds: set[FailureKind]) -> None:
    address, port = getattr(bad_hosts, sort)
    answer = _failure(Ssh().run(sshd.target(address=address, port=port), "echo\n", QUICK))
    assert answer.kind in kinds, answer
    assert answer.seconds < QUICK.host_seconds + 1


def test_a_hung_shell_ends_at_the_deadline(keys: Keys, tmp_path: Path) -> None:
    with servers.sshd(keys, tmp_path, "ForceCommand sleep 60") as server:
        answer = _failure(Ssh().run(server.target(), "echo\n", QUICK))
    assert answer.kind is FailureKind.HUNG
    assert answer.seconds < QUICK.host_seconds + 1


def test_half_an_answer_is_kept_at_the_deadline(sshd: Sshd) -> None:
    answer = Ssh().run(sshd.target(), "echo first; sleep 60\n", QUICK)
    assert isinstance(answer, Outcome)
    assert (answer.stdout, answer.status) == (b"first\n", None)


def test_a_name_that_does_not_resolve_is_named(sshd: Sshd) -> None:
    answer = _failure(Ssh().run(sshd.target(address="no-such-host.invalid"), "echo\n", QUICK))
    assert answer.kind is FailureKind.NAME


def test_a_node_behind_a_jump_host_is_read_and_both_keys_are_verified(sshd: Sshd, keys: Keys) -> None:
    through = sshd.target(address="127.90.98.2", jumps=(sshd.jump(),))
    ssh = Ssh()
    answers = [ssh.run(through, "echo $SSH_CONNECTION\n", Patience()) for _ in range(3)]
    assert all(isinstance(one, Outcome) and b"127.90.98.2" in one.stdout for one in answers)
    ssh.close()

    stranger = sshd.target(jumps=(sshd.jump(host_keys=(keys.public("other"),)),))
    answer = _failure(Ssh().run(stranger, "echo\n", Patience()))
    assert answer.kind is FailureKind.JUMP
    assert "host key changed" in answer.reason

    inner = sshd.target(jumps=(sshd.jump(),), host_keys=(keys.public("other"),))
    assert _failure(Ssh().run(inner, "echo\n", Patience())).kind is FailureKind.HOST_KEY_CHANGED


def test_a_closed_port_behind_a_jump_host_is_refused(sshd: Sshd, bad_hosts: BadHosts) -> None:
    address, port = bad_hosts.closed_port
    through = sshd.target(address=address, port=port, jumps=(sshd.jump(),))
    answer = _failure(Ssh().run(through, "echo\n", Patience()))
    assert answer.kind in (FailureKind.REFUSED, FailureKind.JUMP)


def test_the_keys_of_a_running_agent_are_used(sshd: Sshd, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.agent(keys.user) as socket_path:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket_path)
        answer = Ssh().run(sshd.target(identities=(), agent=True), "echo ok\n", Patience())
    assert isinstance(answer, Outcome), answer


def test_closing_ends_running_calls_at_once(sshd: Sshd) -> None:
    import threading
    import time

    ssh = Ssh()
    answers: list[Outcome | Failure] = []
    thread = threading.Thread(target=lambda: answers.append(ssh.run(sshd.target(), "sleep 60\n", Patience())))
    thread.start()
    time.sleep(1)
    ssh.close()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(answers[0], Failure)
