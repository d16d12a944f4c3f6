"""Smallest x86-64 shared objects that ldconfig accepts: a SONAME and a payload of text.

Layout after System V ABI gABI 4.1 chapters 4 and 5 and elf(5): one header, two program headers
(PT_LOAD over the whole file, PT_DYNAMIC), a dynamic section, its strings, the payload.
"""

from __future__ import annotations

import struct

__all__ = ["shared_object"]

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_DYN = struct.Struct("<qQ")

_ET_DYN, _EM_X86_64 = 3, 62
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 0, 5, 6, 10, 11, 14


def shared_object(soname: str, payload: bytes = b"") -> bytes:
    """A shared object of that SONAME with ``payload`` (text that `strings` finds) at its end."""
    strings = b"\0" + soname.encode() + b"\0"
    dynamic_at = _EHDR.size + 2 * _PHDR.size
    symbols_at = dynamic_at + 6 * _DYN.size
    strings_at = symbols_at + 24  # one null symbol
    body_at = strings_at + len(strings)
    total = body_at + len(payload)
    dynamic = b"".join(
        _DYN.pack(*entry)
        for entry in (
            (_DT_SONAME, 1),
            (_DT_STRTAB, strings_at),
            (_DT_SYMTAB, symbols_at),
            (_DT_STRSZ, len(strings)),
            (_DT_SYMENT, 24),
            (_DT_NULL, 0),
        )
    )
    ident = b"\x7fELF" + bytes([2, 1, 1]) + b"\0" * 9
    header = _EHDR.pack(ident, _ET_DYN, _EM_X86_64, 1, 0, _EHDR.size, 0, 0, _EHDR.size, _PHDR.size, 2, 0, 0, 0)
    load = _PHDR.pack(_PT_LOAD, 4, 0, 0, 0, total, total, 0x1000)
    dynamic_header = _PHDR.pack(_PT_DYNAMIC, 4, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    return header + load + dynamic_header + dynamic + b"\0" * 24 + strings + payload
