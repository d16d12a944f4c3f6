"""A stand-in for the Kubernetes API in a process of its own: objects by path, resource versions, nothing else.

Speaks as much HTTP/1.1 as the benches need (keep-alive, Content-Length) and refuses what the real one
refuses for their sake: a PUT over an older version, a name that exists, a pod that is bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["running"]

_REASONS = {200: "OK", 201: "Created", 404: "Not Found", 409: "Conflict"}


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Its URL, while it runs."""
    command = [sys.executable, "-m", "bench.api_stub"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class _Objects:
    """What is stored, by path."""

    def __init__(self) -> None:
        self._at: dict[str, dict[str, Any]] = {}
        self._version = 0

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and JSON."""
        path = path.partition("?")[0]
        if method == "GET":
            found = self._at.get(path)
            return (200, found) if found is not None else _status(404, "NotFound")
        given = json.loads(body)
        if method == "PUT":
            return self._put(path.removesuffix("/status"), given)
        if path.endswith("/bindings"):
            return self._bind(f"{path.removesuffix('bindings')}pods/{given['metadata']['name']}", given)
        target = f"{path}/{given['metadata']['name']}"
        return _status(409, "AlreadyExists") if target in self._at else (201, self._store(target, given))

    def _put(self, path: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        there = self._at.get(path)
        if there is None:
            return _status(404, "NotFound")
        if given["metadata"].get("resourceVersion") != there["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        return 200, self._store(path, given)

    def _bind(self, path: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        pod = self._at.get(path)
        if pod is None:
            return _status(404, "NotFound")
        if pod.get("spec", {}).get("nodeName"):
            return _status(409, "Conflict")
        self._store(path, {**pod, "spec": {**pod.get("spec", {}), "nodeName": given["target"]["name"]}})
        return 201, {"kind": "Status", "status": "Success", "code": 201}

    def _store(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        written = {**given, "metadata": {**given["metadata"], "resourceVersion": str(self._version)}}
        self._at[path] = written
        return written


def _status(code: int, reason: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}


class _Speaker(asyncio.Protocol):
    """One connection."""

    def __init__(self, objects: _Objects) -> None:
        self._objects = objects
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every whole request that has come."""
        self._heard += data
        while (end := self._heard.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._heard[:end].decode("latin-1").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            size = int(fields.get("content-length", "0"))
            if len(self._heard) < end + 4 + size:
                return
            body, self._heard = self._heard[end + 4 : end + 4 + size], self._heard[end + 4 + size :]
            method, path, _ = first.split(" ")
            code, found = self._objects.answer(method, path, body)
            text = json.dumps(found).encode()
            head = f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(head.encode() + b"\r\n\r\n" + text)


async def _serve() -> None:
    objects = _Objects()
    server = await asyncio.get_running_loop().create_server(lambda: _Speaker(objects), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve())
