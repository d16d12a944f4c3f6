"""Ansible by ansible-runner: one run per wave, in a private folder, in a process group that dies with us.

The run itself is a child (`python -m bringup.playbooks`) in a session of its
own. It holds the read end of a pipe whose other end only this process has: when
the pipe closes, however this process died, the child ends everything below it.
What Ansible reports becomes progress and reasons; whether a stage is done is
decided by facts read anew, never here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bringup import ansible_files
from lockstep.base import errors, limits
from lockstep.base.names import NodeName

__all__ = ["Host", "HostResult", "run", "terminate_all"]

Host = ansible_files.Host

CONTENT: Final = Path(__file__).resolve().parent
"""Roles and playbooks lie beside this module, also in an installed wheel."""

GRACE_SECONDS: Final = 5.0
"""For the child to end its tree after TERM, before it is killed itself."""

_live: dict[int, subprocess.Popen[str]] = {}
_lock = threading.Lock()
_ending = threading.Event()
"""Set by `terminate_all`: what ends then was ended by us, and nothing new begins."""


@dataclass(slots=True)
class HostResult:
    """What Ansible reports of one host. Good for messages, no proof of anything."""

    ok: bool = True
    unreachable: bool = False
    reason: str = ""
    changed: list[str] = field(default_factory=list)
    """Names of the tasks that changed something."""


def run(
    playbook: str,
    hosts: Sequence[Host],
    variables: Mapping[str, object],
    secrets: Mapping[str, bytes],
    *,
    state: Path,
    progress: Callable[[NodeName | None, str], None],
    seconds: float = limits.ANSIBLE_RUN_SECONDS,
) -> dict[NodeName, HostResult]:
    """Run ``playbooks/PLAYBOOK.yml`` on all ``hosts`` at once.

    ``secrets`` maps file name → content: they lie as 0600 files in the private
    folder, whose path the playbook gets as ``private_files``; nothing else carries
    them. ``progress`` is called with (node or None for all, task).
    Raises `errors.EngineError` when Ansible itself could not run, `errors.InterruptedRunError`
    after `terminate_all`.
    """
    results = {host.node: HostResult() for host in hosts}
    if not hosts:
        return results
    with ansible_files.private_folder(state) as folder:
        ansible_files.write(folder, hosts, variables, secrets)
        request = {"folder": str(folder), "playbook": f"{playbook}.yml", "seconds": seconds, "hosts": len(hosts)}
        status, last = _drive(request, results, progress)
    if _ending.is_set():
        raise errors.InterruptedRunError(
            "ended with the program that ran it", hint="the same command goes on from here"
        )
    if status not in ("successful", "failed"):
        raise errors.EngineError(f"ansible ended as {status}: {last}", place=f"playbook {playbook}")
    if status == "failed" and all(result.ok for result in results.values()):
        # It failed without blaming a host: an error in the playbook itself, or nothing ran at all.
        raise errors.EngineError(f"ansible failed: {last or 'no task ran'}", place=f"playbook {playbook}")
    return results


def terminate_all() -> None:
    """End every Ansible run of this process and all that it started, for good. Safe to call from any thread."""
    _ending.set()
    with _lock:
        running = list(_live.values())
    for child in running:
        _signal(child, signal.SIGTERM)
    for child in running:
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[str], number: int) -> None:
    """To the child alone: it walks its own tree, whose members may lead sessions of their own."""
    if child.poll() is None:
        child.send_signal(number)


def _drive(
    request: Mapping[str, object],
    results: dict[NodeName, HostResult],
    progress: Callable[[NodeName | None, str], None],
) -> tuple[str, str]:
    """(status, last message) of one child."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bringup.playbooks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ansible_files.environment(Path(str(request["folder"])), CONTENT),
        cwd=str(request["folder"]),
        start_new_session=True,
    )
    with _lock:
        _live[child.pid] = child
    complaints: list[str] = []
    assert child.stdin is not None  # noqa: S101 - PIPE above
    assert child.stdout is not None  # noqa: S101
    assert child.stderr is not None  # noqa: S101
    listener = threading.Thread(target=lambda: complaints.extend(child.stderr or ()), daemon=True)
    listener.start()
    status, last = "killed", ""
    try:
        child.stdin.write(json.dumps(request) + "\n")
        child.stdin.flush()
        for line in child.stdout:
            event = json.loads(line)
            if "status" in event:
                status, last = event["status"], event.get("message", "")
            else:
                _take(event, results, progress)
        child.wait()
        listener.join(GRACE_SECONDS)
    except BrokenPipeError:
        child.wait()
    finally:
        # On Ctrl-C and on errors too: the closed pipe is what ends the tree below the child.
        child.stdin.close()
        _reap(child)
        with _lock:
            _live.pop(child.pid, None)
    return status, last or (complaints[-1].strip() if complaints else "")


def _reap(child: subprocess.Popen[str]) -> None:
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        _signal(child, signal.SIGKILL)
        child.wait()
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def _take(
    event: Mapping[str, Any],
    results: dict[NodeName, HostResult],
    progress: Callable[[NodeName | None, str], None],
) -> None:
    task = str(event.get("task", ""))
    if event["event"] == "playbook_on_task_start":
        progress(None, task)
        return
    result = results.get(NodeName(str(event.get("host"))))
    if result is None:
        return
    node = NodeName(str(event["host"]))
    if event["event"] == "runner_on_ok" and event.get("changed"):
        result.changed.append(task)
        progress(node, task)
    elif event["event"] == "runner_on_unreachable":
        result.ok, result.unreachable = False, True
        result.reason = f"{task}: {event.get('message') or 'unreachable'}"
        progress(node, result.reason)
    elif event["event"] == "runner_on_failed" and not event.get("ignored"):
        result.ok = False
        result.reason = f"{task}: {event.get('message') or 'failed'}"
        progress(node, result.reason)


# The child


def _child() -> int:
    """Read one request, run it, print events as JSON lines; end everything when the parent's pipe closes."""
    from bringup import descendants

    descendants.adopt_orphans()
    request = json.loads(sys.stdin.readline())

    def end_tree(*_: object) -> None:
        descendants.kill_all()
        ansible_files.remove(Path(request["folder"]))
        os._exit(130)

    signal.signal(signal.SIGTERM, end_tree)
    signal.signal(signal.SIGINT, end_tree)
    threading.Thread(target=_watch_parent, args=(end_tree,), daemon=True).start()
    print(json.dumps(_run_ansible(request)), flush=True)
    descendants.kill_all()
    return 0


def _watch_parent(end_tree: Callable[[], None]) -> None:
    """Blocks until the pipe from the parent is closed: by its end, or by its death."""
    sys.stdin.read()
    end_tree()


def _run_ansible(request: Mapping[str, Any]) -> dict[str, str]:
    import ansible_runner

    folder = Path(request["folder"])
    try:
        done = ansible_runner.run(
            private_data_dir=str(folder),
            playbook=str(CONTENT / "playbooks" / request["playbook"]),
            inventory=str(folder / "inventory.json"),
            roles_path=str(CONTENT / "roles"),
            forks=min(int(request["hosts"]), limits.ANSIBLE_FORKS),
            timeout=int(request["seconds"]),
            event_handler=_print_event,
            # Ours, else the runner puts its own signal handlers over those that end the whole tree.
            cancel_callback=lambda: False,
            suppress_env_files=True,
            quiet=True,
        )
    except Exception as error:  # noqa: BLE001 - nothing is hidden: it is the run's status, and the parent raises it
        return {"status": "error", "message": f"{type(error).__name__}: {error}"}
    message = "" if done.status == "successful" else _last_lines(done)
    return {"status": str(done.status), "message": message}


def _last_lines(done: Any) -> str:
    """The end of Ansible's own output, for an error that names no host."""
    from ansible_runner import exceptions

    try:
        with done.stdout as stream:
            lines = [line.strip() for line in stream.read().splitlines() if line.strip()]
    except (exceptions.AnsibleRunnerException, OSError) as error:
        return f"its output cannot be read: {error}"
    errors_ = [line for line in lines if "ERROR" in line]
    return str((errors_ or lines or [""])[-1])[:500]


def _print_event(event: dict[str, Any]) -> bool:
    """One line per event that matters. False: the runner keeps no event file."""
    data = event.get("event_data") or {}
    kind = event.get("event", "")
    if kind in ("playbook_on_task_start", "runner_on_ok", "runner_on_failed", "runner_on_unreachable"):
        result = data.get("res") or {}
        line = {
            "event": kind,
            "task": data.get("task") or data.get("name") or "",
            "host": data.get("host"),
            "changed": bool(result.get("changed")),
            "ignored": bool(data.get("ignore_errors")),
            "message": _message(result),
        }
        print(json.dumps(line), flush=True)
    return False


def _message(result: Mapping[str, Any]) -> str:
    """The reason of a failure, short. Results of `no_log` tasks arrive censored."""
    failed = [one for one in result.get("results") or () if isinstance(one, dict) and one.get("failed")]
    if failed:
        # A loop says of itself only that all items were tried.
        return _message(failed[0])
    text = str(result.get("msg") or result.get("censored") or "")
    detail = str(result.get("stderr") or result.get("module_stderr") or "")
    joined = f"{text}: {detail.strip().splitlines()[-1]}" if detail.strip() else text
    return " ".join(joined.split())[:400]


if __name__ == "__main__":
    sys.exit(_child())
