"""One script to one host by the system's own ssh: for what `ssh` (paramiko) does not do.

FIPS builds, GSSAPI, ProxyCommand, host certificates, hardware keys and whatever else ``~/.ssh/config`` says of the
host. Three times the client CPU of paramiko and more (a process per host), so it is a choice and not the default.

Every call gets a configuration of its own in a private folder: what the target says stands first (ssh takes the first
value of an option), then the user's and the system's files. The target's keys are all that its known_hosts holds. No
connection is shared or left behind. ssh bounds neither the login nor the host, so its log (-E) is read for how far it
came, and its process group is killed at the limits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from bringup.transport import known_hosts, openssh_log
from bringup.transport.base import Failure, FailureKind, Identity, Jump, Outcome, Patience, Target
from bringup.transport.sockets import Clock
from lockstep.base import limits
from lockstep.base.names import NodeName

__all__ = ["OpenSsh", "configuration"]

_READ_BYTES = 64 * 1024
_STDERR_BYTES = 64 * 1024
_LOOK_SECONDS = 0.2
"""How often the log is looked at until the login is done."""
_ALWAYS = (
    "BatchMode yes",
    "ControlMaster no",
    "ControlPath none",
    "ForwardAgent no",
    "ForwardX11 no",
    "ClearAllForwardings yes",
    "PermitLocalCommand no",
    "RequestTTY no",
    "UpdateHostKeys no",
    "GlobalKnownHostsFile /dev/null",
    "LogLevel DEBUG1",
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Files:
    """Paths of one call, all in the private folder."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def hops(self, target: Target) -> list[tuple[Target | Jump, Path]]:
        """Every host on the way with its own known_hosts file, the target last."""
        jumps: list[tuple[Target | Jump, Path]] = [
            (jump, self.folder / f"known_hosts.{hop}") for hop, jump in enumerate(target.jumps)
        ]
        return [*jumps, (target, self.folder / "known_hosts")]


class OpenSsh:
    """The transport. One object per sweep; ``accept_new`` as in `ssh.Ssh`; ``config`` replaces ``~/.ssh/config``."""

    def __init__(self, *, accept_new: bool = False, config: Path | None = None) -> None:
        self._accept_new = accept_new
        self._user_files = (config,) if config else (Path.home() / ".ssh/config", Path("/etc/ssh/ssh_config"))
        self._lock = threading.Lock()
        self._count = itertools.count()
        self._root: Path | None = None
        self._running: dict[subprocess.Popen[bytes], NodeName] = {}
        self._closed = False

    def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
        """See `base.Transport.run`."""
        clock = Clock(patience)
        program = shutil.which("ssh")
        if program is None:
            return Failure(FailureKind.CLOSED, "the system has no ssh", remedy="install openssh-client")
        if not _plain(target.node):
            return Failure(FailureKind.NAME, f"{str(target.node)!r} cannot be a host name of ssh's configuration")
        files = self._files()
        try:
            self._write(files, target)
            return self._talk([program, "-F", str(files.config), "-E", str(files.log)], files, target, script, clock)
        except OSError as error:
            return Failure(FailureKind.CLOSED, f"ssh could not be started: {error}", clock.spent)
        finally:
            shutil.rmtree(files.folder, ignore_errors=True)

    def cut(self, node: NodeName) -> None:
        """See `base.Transport.cut`."""
        with self._lock:
            running = [process for process, name in self._running.items() if name == node]
        for process in running:
            _kill(process)

    def close(self) -> None:
        """End every running ssh and remove the private folder."""
        with self._lock:
            self._closed = True
            running, root = list(self._running), self._root
            self._root = None
        for process in running:
            _kill(process)
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)

    def _files(self) -> _Files:
        with self._lock:
            if self._root is None:
                # In memory where there is such a folder: keys given as text never reach a disk.
                memory = Path("/dev/shm")  # noqa: S108 - a private folder below it
                place = memory if os.access(memory, os.W_OK) else None
                self._root = Path(tempfile.mkdtemp(prefix="lockstep-ssh.", dir=place))
            folder = self._root / str(next(self._count))
        folder.mkdir(mode=0o700)
        return _Files(folder)

    def _write(self, files: _Files, target: Target) -> None:
        for one, path in files.hops(target):
            path.write_text(known_lines(one))
        text = configuration(target, files.folder, self._user_files, accept_new=self._accept_new)
        files.config.write_text(text)
        for number, identity in enumerate(_texts(target)):
            key = files.folder / f"key.{number}"
            with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write((identity.text or "").rstrip("\n") + "\n")

    def _talk(self, command: list[str], files: _Files, target: Target, script: str, clock: Clock) -> Outcome | Failure:
        with self._lock:
            if self._closed:
                return Failure(FailureKind.CLOSED, "the sweep was stopped", clock.spent)
            process = subprocess.Popen(
                [*command, "-T", "--", str(target.node), "sh -s"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,  # so that jump hosts' processes end with it
            )
            self._running[process] = target.node
        try:
            talk = _Talk(process, files.log, clock, script.encode(), jumps=bool(target.jumps))
            ended = talk.run()
        finally:
            _kill(process)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                _close(pipe)
            with self._lock:
                self._running.pop(process, None)
        if self._accept_new:
            self._learn(files, target)
        return self._verdict(talk, ended, process.returncode, target, clock)

    def _learn(self, files: _Files, target: Target) -> None:
        """Keys that ssh accepted anew, into the files of their hosts."""
        for one, path in files.hops(target):
            if one.host_keys or one.trust.file is None or one.trust.authorities or not path.is_file():
                continue
            for line in path.read_text().splitlines():
                fields = line.split()
                if len(fields) >= 3 and not line.startswith("@"):
                    known_hosts.remember(one.trust, f"{fields[1]} {fields[2]}")

    def _verdict(self, talk: _Talk, ended: bool, status: int, target: Target, clock: Clock) -> Outcome | Failure:
        log = openssh_log.Log(talk.read_log(), talk.err.decode("utf-8", "replace"))
        if len(talk.out) > (most := limits.OUTPUT_BYTES_PER_NODE):
            return Failure(FailureKind.BAD_OUTPUT, f"more than {most} bytes came back", clock.spent)
        if not log.authenticated:
            return dataclasses.replace(openssh_log.failure(log, target, clock, ended=ended), seconds=clock.spent)
        if not talk.out and not ended:
            reason = f"logged in, but the script gave nothing in {clock.patience.host_seconds:.0f} s"
            return Failure(FailureKind.HUNG, reason, clock.spent)
        cut = not ended or (status == 255 and log.cut)
        if cut and not talk.out:
            return Failure(FailureKind.CLOSED, "logged in, but the connection ended without any output", clock.spent)
        return Outcome(bytes(talk.out), bytes(talk.err), None if cut else status, clock.spent)


class _Talk:
    """Feeds the script and reads to the end, the caps or a limit."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, clock: Clock, script: bytes, *, jumps: bool
    ) -> None:
        self._process, self._log, self._clock, self._rest, self._jumps = process, log, clock, script, jumps
        self.out = bytearray()
        self.err = bytearray()

    def read_log(self) -> str:
        """ssh's own log so far."""
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def run(self) -> bool:
        """True when ssh ended its output by itself."""
        given, out, err = self._process.stdin, self._process.stdout, self._process.stderr
        if given is None or out is None or err is None:
            return False
        with selectors.DefaultSelector() as selector:
            for pipe, events in (
                (given, selectors.EVENT_WRITE),
                (out, selectors.EVENT_READ),
                (err, selectors.EVENT_READ),
            ):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, events)
            authenticated = False
            while out in selector.get_map() or err in selector.get_map():
                if len(self.out) > limits.OUTPUT_BYTES_PER_NODE or self._clock.left() <= 0.001:
                    return False
                authenticated = authenticated or openssh_log.Log(self.read_log(), "").authenticated
                if not authenticated and self._late():
                    return False
                wait = self._clock.left() if authenticated else min(self._clock.left(), _LOOK_SECONDS)
                for key, _ in selector.select(wait):
                    self._serve(selector, key.fileobj, given, out)  # type: ignore[arg-type] # only our pipes are registered
        # The output is over; the status follows at once, or the connection hangs.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(min(self._clock.left(), 1.0))
        return self._process.returncode is not None

    def _late(self) -> bool:
        """Whether a limit before the login has passed."""
        log = openssh_log.Log(self.read_log(), "")
        if not self._jumps and not log.connected and self._clock.spent > self._clock.patience.connect_seconds:
            return True
        return self._clock.login <= 0.001

    def _serve(self, selector: selectors.BaseSelector, pipe: IO[bytes], given: IO[bytes], out: IO[bytes]) -> None:
        if pipe is given:
            try:
                self._rest = self._rest[os.write(given.fileno(), self._rest[:_READ_BYTES]) :]
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._rest = b""
            if not self._rest:
                selector.unregister(given)
                _close(given)
            return
        try:
            piece = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not piece:
            selector.unregister(pipe)
        elif pipe is out:
            self.out += piece
        elif len(self.err) < _STDERR_BYTES:
            self.err += piece


def configuration(target: Target, folder: Path, user_files: tuple[Path, ...], *, accept_new: bool) -> str:
    """The text of ssh's configuration file for one target; other files of the call lie in ``folder``."""
    keys = {identity: folder / f"key.{number}" for number, identity in enumerate(_texts(target))}
    names = [f"lockstep-jump-{hop}" for hop in range(len(target.jumps))]
    lines = [f"Host {target.node}", *_host(target, folder / "known_hosts", keys, accept_new=accept_new)]
    lines += [f"ProxyJump {','.join(names)}"] if names else []
    for hop, jump in enumerate(target.jumps):
        lines += [f"Host {names[hop]}", *_host(jump, folder / f"known_hosts.{hop}", keys, accept_new=accept_new)]
        # What it logs comes out beside the script's own complaints.
        lines += ["LogLevel ERROR", *(["ProxyJump none"] if hop == 0 else [])]
    lines += ["Match all", *_ALWAYS]
    # After ours: where we say nothing, the user's words hold (GSSAPIAuthentication, ProxyCommand, Ciphers …).
    lines += [f'Include "{path}"' for path in user_files]
    return "\n".join(lines) + "\n"


def _host(one: Target | Jump, known: Path, keys: dict[Identity, Path], *, accept_new: bool) -> list[str]:
    new = accept_new and not one.host_keys and not one.trust.authorities and one.trust.file is not None
    lines = [
        f"HostName {one.address}",
        f"Port {one.port}",
        f"User {one.user}",
        f"HostKeyAlias {one.trust.host or one.address}",
        f"UserKnownHostsFile {_quoted(known)}",
        f"StrictHostKeyChecking {'accept-new' if new else 'yes'}",
    ]
    lines += [f"IdentityFile {_quoted(keys.get(identity) or identity.path or '')}" for identity in one.identities]
    lines += [f"CertificateFile {_quoted(path)}" for path in one.certificates]
    # Without identities of ours ssh's own defaults and the agent serve.
    lines += ["IdentitiesOnly yes", "IdentityAgent none"] if not one.agent else []
    lines += ["IdentityFile none"] if not one.agent and not one.identities else []
    return lines


def _quoted(path: str | Path) -> str:
    """For ssh_config(5): quoted for blanks; a percent sign would begin one of its tokens."""
    return '"{}"'.format(str(path).replace("%", "%%"))


def known_lines(one: Target | Jump) -> str:
    """What ssh may accept of a host, as the text of a known_hosts file."""
    trust, name = one.trust, one.trust.host or one.address
    lines = [f"{name} {key}" for key in one.host_keys]
    lines += [f"@cert-authority {name} {key}" for key in trust.authorities]
    lines += [f"@revoked {name} {key}" for key in trust.revoked]
    return "".join(f"{line}\n" for line in lines)


def _texts(target: Target) -> list[Identity]:
    identities = [*target.identities, *(identity for jump in target.jumps for identity in jump.identities)]
    return list(dict.fromkeys(identity for identity in identities if identity.text is not None))


def _plain(name: str) -> bool:
    return name.replace("-", "").replace(".", "").replace("_", "").replace(":", "").isalnum() and name[0] not in "-."


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The group, not the process: ssh runs another ssh for a jump host. It is ours until it is waited for.
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()
