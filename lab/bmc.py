"""A BMC without a machine: sushy-tools' static emulator over a tree of resources, and one that has a BMC's bad habits.

Only on loopback. What it serves is a folder of resources as the emulator takes it; `unfold` makes one of a mapping of
paths, the form in which public inventories are kept.
"""

from __future__ import annotations

import base64
import enum
import json
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import server
from pathlib import Path
from typing import Any, Final

from sushy_tools.static import main as emulator

__all__ = ["Habit", "serving", "unfold"]

_ROOT: Final = "/redfish/v1"


class Habit(enum.StrEnum):
    """What real BMCs do."""

    HONEST = "honest"
    SLOW = "slow"
    """Each answer takes `PAUSE` seconds."""
    TRICKLE = "trickle"
    """Its inventory comes byte by byte, without end."""
    HTML = "html"
    """A page of its web server in place of the inventory."""
    CUT = "cut"
    """The inventory ends in the middle."""
    BROKEN_MEMBER = "broken-member"
    """One member of the inventory answers 500."""
    CIRCLE = "circle"
    """The next page of the inventory is the inventory."""
    FLOOD = "flood"
    """The inventory is a text without end, as fast as the line takes it."""
    FLOOD_MEMBER = "flood-member"
    """One member of the inventory does so."""
    SQUEEZED = "squeezed"
    """The inventory is compressed: a megabyte that unfolds to 256."""
    ELSEWHERE = "elsewhere"
    """The inventory has moved to another host."""


PAUSE: Final = 1.0


def unfold(tree: Mapping[str, Mapping[str, Any]], folder: Path, *, expand: bool = False) -> Path:
    """Write ``tree`` (path → resource) as the emulator's folder; what a root needs and the tree lacks is added.

    ``expand``: the root promises ``$expand``, as newer BMCs do; the emulator ignores it, as some of them do.
    """
    whole: dict[str, Any] = {
        _ROOT: {
            "@odata.id": f"{_ROOT}/",
            "Id": "RootService",
            "Name": "Root Service",
            "RedfishVersion": "1.11.0",
            "UUID": "00000000-0000-0000-0000-000000000000",
            "UpdateService": {"@odata.id": f"{_ROOT}/UpdateService"},
            "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": expand, "ExpandAll": expand}},
        },
        f"{_ROOT}/UpdateService": {
            "@odata.id": f"{_ROOT}/UpdateService",
            "FirmwareInventory": {"@odata.id": f"{_ROOT}/UpdateService/FirmwareInventory"},
        },
        **{path.rstrip("/"): resource for path, resource in tree.items()},
    }
    if f"{_ROOT}/Systems" in whole:
        whole[_ROOT]["Systems"] = {"@odata.id": f"{_ROOT}/Systems"}
    for path, resource in whole.items():
        place = folder / path.removeprefix(_ROOT).strip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.json").write_text(json.dumps(resource), encoding="utf-8")
    return folder


@contextmanager
def serving(
    folder: Path,
    *,
    habit: Habit = Habit.HONEST,
    login: str | None = None,
    tls: tuple[Path, Path] | None = None,
    address: str = "127.0.0.1",
    seen: list[str] | None = None,
) -> Iterator[str]:
    """The URL of a BMC on a free port of ``address`` that serves ``folder``. ``login``: USER:PASSWORD it asks for.

    ``tls``: files of certificate and key. ``seen`` gets the path of each request. Ends with the block, also when
    clients still hang on it.
    """
    handler = type("Handler", (_Handler,), {"folder": folder, "habit": habit, "login": login, "seen": seen})
    http = server.ThreadingHTTPServer((address, 0), handler)
    http.daemon_threads = True
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://{address}:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Handler(emulator.RequestHandler):  # type: ignore[misc] # sushy-tools has no types
    """The emulator's own answers behind a login and a habit."""

    folder: Path
    habit: Habit
    login: str | None
    seen: list[str] | None

    path: str

    def do_GET(self) -> None:  # noqa: N802 - the name is the protocol's
        path = self.path.partition("?")[0].rstrip("/")
        if self.seen is not None:
            self.seen.append(path)
        # As BMCs do: the root is open, everything below asks for a login.
        if self.login is not None and path != _ROOT and not self._known():
            self.send_error(401)
            return
        if self.habit is Habit.SLOW:
            time.sleep(PAUSE)
        if self._misbehaves(path):
            return
        self.path = path
        # The emulator keeps its folder in a global: set for this answer alone under its lock.
        with _LOCK:
            emulator.REDFISH_MOCKUP_FILES = str(self.folder)
            super().do_GET()

    def _misbehaves(self, path: str) -> bool:
        """Whether the habit has answered in place of the emulator."""
        inventory, second = path.endswith("/FirmwareInventory"), path.endswith("_GPU_1")
        match self.habit:
            case Habit.TRICKLE if inventory:
                self._trickle()
            case Habit.FLOOD if inventory:
                self._trickle(b'{"Members": ["' + b"x" * 65536, pause=0)
            case Habit.HTML if inventory:
                self._send(b"<html><body>Session expired</body></html>", "text/html")
            case Habit.SQUEEZED if inventory:
                self._send(_squeezed(), encoding="gzip")
            case Habit.ELSEWHERE if inventory:
                self.send_response(307)
                self.send_header("Location", f"http://127.0.0.9:{self.server.server_address[1]}{path}")
                self.end_headers()
            case Habit.CUT | Habit.CIRCLE if inventory:
                self._send(self._damaged(path))
            case Habit.BROKEN_MEMBER if second:
                self.send_error(500)
            case Habit.FLOOD_MEMBER if second:
                self._trickle(b'{"Version": "' + b"x" * 65536, pause=0)
            case _:
                return False
        return True

    def _known(self) -> bool:
        wanted = "Basic " + base64.b64encode(str(self.login).encode()).decode()
        return bool(self.headers.get("Authorization") == wanted)

    def _damaged(self, path: str) -> bytes:
        text = (self.folder / path.removeprefix(_ROOT).strip("/") / "index.json").read_text(encoding="utf-8")
        if self.habit is Habit.CUT:
            return text[: len(text) // 2].encode()
        return json.dumps({**json.loads(text), "Members@odata.nextLink": f"{path}?$skip=50"}).encode()

    def _send(self, body: bytes, kind: str = "application/json", encoding: str | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if encoding is not None:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _trickle(self, piece: bytes = b" ", pause: float = 0.2) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            while True:
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(pause)
        except OSError:
            return

    def _log_request(self, method: str) -> None:
        """Not the headers: they hold the password."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nothing on standard error."""


_LOCK = threading.Lock()


def _squeezed() -> bytes:
    """256 MB of blanks, compressed."""
    press = zlib.compressobj(1, wbits=31)
    blanks = b" " * 1024 * 1024
    return b"".join([*(press.compress(blanks) for _ in range(256)), press.flush()])
