r"""Text from machines made harmless for people: control and direction-changing characters become visible.

A host name, a version or a complaint is whatever a node says. An escape sequence in it
must not move a terminal's cursor, nor a direction mark make ``a`` read as ``b``.

>>> visible("580.\x1b[2J126")
'580.\\x1b[2J126'
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_host_name", "visible"]

# C0 and C1 controls (U+009B alone begins a sequence), line and paragraph separators, zero-width and direction marks,
# lone surrogates, non-characters, tags. A line feed too: one text is one line wherever it is shown.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._:%-]{0,252}[A-Za-z0-9_])?", re.ASCII)


def visible(text: str, *, lines: bool = False) -> str:
    """``text`` with each unseen character written out, ``\\x1b`` or ``\\u202e``; ``lines`` keeps line ends and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda match: match[0] if lines and match[0] in "\n\t" else _written(match[0]), text)


def _written(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def is_host_name(text: str) -> bool:
    """Whether ``text`` can be a host's name or address at all: no blank, no shell word, no option (``-o…``)."""
    return _HOST.fullmatch(text) is not None
