"""HTTP answers of BMCs, bounded: in size, in time, and to the BMC's own address. For `bmc` alone; imports requests.

requests reads an answer whole before anyone sees it, and counts its time-out anew with every byte. Here an answer is
read piece by piece: one that is too long, or goes on beyond the deadline, is dropped with what came of it.
"""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

__all__ = ["ALL_BYTES", "ANSWER_BYTES", "Adapter", "Flooded", "TooLongError"]

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""One answer. The whole inventory of a DGX H100 with its members is below 200 kB."""
ALL_BYTES: Final = 16 * 1024 * 1024
"""All answers of one BMC in one reading."""
_PIECE: Final = 64 * 1024


class TooLongError(ValueError):
    """One answer is longer than `ANSWER_BYTES`."""


class Flooded(Exception):  # noqa: N818 - what the BMC did
    """All answers together are longer than `ALL_BYTES`: nothing more is asked."""


class Adapter(HTTPAdapter):
    """Sends to one host only; ``until`` is a time of `time.monotonic`."""

    def __init__(self, url: str, until: float, answer: int = ANSWER_BYTES, all_: int = ALL_BYTES) -> None:
        super().__init__()
        self._host = urlsplit(url).netloc
        self._until = until
        self._answer = answer
        self._left = all_

    def send(self, request: requests.PreparedRequest, *args: Any, **more: Any) -> requests.Response:
        """The response with its whole body. Raises `TooLongError`, `Flooded`, TimeoutError, or what requests does."""
        if urlsplit(str(request.url)).netloc != self._host:
            raise ValueError(f"the BMC sends us to {request.url}, which is not itself")
        given = more.get("timeout")
        left = max(self._until - time.monotonic(), 0.1)
        # A silent BMC is given up at the deadline, too.
        more["timeout"] = tuple(min(part, left) for part in given) if isinstance(given, tuple) else given
        response = super().send(request, *args, **{**more, "stream": True})
        try:
            body = self._body(response.raw)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise requests.exceptions.ReadTimeout(error, request=request) from error
        except urllib3.exceptions.HTTPError as error:
            raise requests.exceptions.ContentDecodingError(error, request=request) from error
        finally:
            response.raw.close()
        # As requests keeps a body that it has read itself.
        response._content = body
        response._content_consumed = True
        return response

    def _body(self, raw: Any) -> bytes:
        pieces = bytearray()
        while True:
            if time.monotonic() >= self._until:
                raise TimeoutError
            piece = raw.read1(_PIECE, decode_content=True)
            if not piece:
                return bytes(pieces)
            pieces += piece
            self._left -= len(piece)
            if len(pieces) > self._answer:
                raise TooLongError(f"an answer of more than {self._answer // 1024} kB")
            if self._left < 0:
                raise Flooded("more than all of its firmware could be")
