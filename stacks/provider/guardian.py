"""Ends this process, and the Ansible runs it started, when the engine is gone.

The engine starts plugins in process groups of their own and a SIGKILL gives it no time to
end them; without this they would go on changing machines that nobody is watching.
"""

from __future__ import annotations

import os
import select
import sys
import threading

__all__ = ["end_acts", "watch"]

POLL_SECONDS = 1.0
"""Where the kernel has no pidfd (before 5.3): how often the parent's pid is looked at."""


def watch(engine: int) -> threading.Thread:
    """Watch the process ``engine`` (our parent) from a thread of its own; the process ends with it, exit 1."""
    thread = threading.Thread(target=_wait, args=(engine,), name="guardian", daemon=True)
    thread.start()
    return thread


def end_acts() -> None:
    """End every Ansible process group of this process; nothing to do when none was ever started."""
    # Not imported for this: a preview never loads it, and then there is nothing to end.
    playbooks = sys.modules.get("bringup.playbooks")
    if playbooks is not None:
        playbooks.terminate_all()


def _wait(engine: int) -> None:
    try:
        descriptor = os.pidfd_open(engine)
    except ProcessLookupError:
        descriptor = None
    except OSError:
        while os.getppid() == engine:
            threading.Event().wait(POLL_SECONDS)
        descriptor = None
    # Checked after opening: a pid that was reused before we looked is not our parent.
    if descriptor is not None and os.getppid() == engine:
        # `poll`, not a read: a pidfd becomes readable when its process ends.
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll()
    # Nothing is printed: our standard error is a pipe to the engine, and writing to it now fails.
    try:
        end_acts()
    finally:
        os._exit(1)
