"""Writes Debian packages byte for byte the same on any machine: no clock, no user, no tool version in them.

Format: deb(5), ar(5) and the ustar header of POSIX 1003.1-1990. Members are stored
without compression, because compressors differ between versions; every entry
belongs to root, carries one fixed time and a mode of 0755 or 0644.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SOURCE_DATE_EPOCH", "Package"]

SOURCE_DATE_EPOCH = 1_767_225_600
"""2026-01-01 00:00 UTC, the one time in every package and index."""

MAINTAINER = "Lockstep lab <lab@localhost>"
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Package:
    """One stand-in package: control fields, files by absolute path, maintainer scripts by name."""

    name: str
    version: str
    files: Mapping[str, bytes]
    """Absolute path → content; files below bin or sbin and those starting with ``#!`` are executable."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Absolute path → target of the symbolic link."""
    depends: tuple[str, ...] = ()
    scripts: Mapping[str, bytes] = field(default_factory=dict)
    """``postinst``, ``prerm`` … → content."""
    conffiles: tuple[str, ...] = ()
    section: str = "misc"
    description: str = "stand-in of the lab"

    architecture = "amd64"

    @property
    def file_name(self) -> str:
        """``NAME_VERSION_ARCH.deb``, the epoch left out as dpkg-deb does."""
        return f"{self.name}_{self.version.partition(':')[2] or self.version}_{self.architecture}.deb"

    def control(self) -> str:
        """The control paragraph."""
        size = sum((len(data) + 1023) // 1024 for data in self.files.values())
        lines = [
            f"Package: {self.name}",
            f"Version: {self.version}",
            f"Architecture: {self.architecture}",
            f"Maintainer: {MAINTAINER}",
            f"Installed-Size: {size}",
            f"Section: {self.section}",
            "Priority: optional",
        ]
        if self.depends:
            lines.insert(5, f"Depends: {', '.join(self.depends)}")
        return "\n".join([*lines, f"Description: {self.description}", ""])

    def content(self) -> bytes:
        """The whole .deb."""
        md5sums = "".join(
            f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  {path.lstrip('/')}\n"
            for path, data in sorted(self.files.items())
        )
        control: dict[str, bytes] = {"./control": self.control().encode(), "./md5sums": md5sums.encode()}
        if self.conffiles:
            control["./conffiles"] = "".join(f"{path}\n" for path in self.conffiles).encode()
        control |= {f"./{name}": text for name, text in self.scripts.items()}
        members = {
            "debian-binary": b"2.0\n",
            "control.tar": _tar(control, {}, executable=self.scripts_paths()),
            "data.tar": _tar(
                {f".{path}": data for path, data in self.files.items()},
                {f".{path}": target for path, target in self.links.items()},
                executable=frozenset(f".{path}" for path, data in self.files.items() if _is_program(path, data)),
            ),
        }
        return b"!<arch>\n" + b"".join(_ar_member(name, data) for name, data in members.items())

    def scripts_paths(self) -> frozenset[str]:
        """Members of control.tar that must be executable."""
        return frozenset(f"./{name}" for name in self.scripts)


def _is_program(path: str, data: bytes) -> bool:
    return path.rsplit("/", 2)[-2] in ("bin", "sbin") or data.startswith(b"#!")


def _ar_member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{SOURCE_DATE_EPOCH:<12}{0:<6}{0:<6}{0o100644:<8o}{len(data):<10}`\n"
    return head.encode("ascii") + data + (b"\n" if len(data) % 2 else b"")


def _tar(files: Mapping[str, bytes], links: Mapping[str, str], *, executable: frozenset[str]) -> bytes:
    """A ustar archive of the files, links and every folder above them, sorted by path."""
    folders = {"./"}
    for path in (*files, *links):
        parts = path.split("/")[:-1]
        folders |= {"/".join(parts[: depth + 1]) + "/" for depth in range(1, len(parts))}
    out: list[bytes] = []
    for path in sorted({*folders, *files, *links}):
        if path in folders:
            out.append(_header(path, b"5", 0o755, 0, ""))
        elif path in links:
            out.append(_header(path, b"2", 0o777, 0, links[path]))
        else:
            data = files[path]
            out.append(_header(path, b"0", 0o755 if path in executable else 0o644, len(data), ""))
            out.append(data + b"\0" * (-len(data) % _BLOCK))
    body = b"".join(out) + b"\0" * (2 * _BLOCK)
    # Readers expect whole records of twenty blocks.
    return body + b"\0" * (-len(body) % (20 * _BLOCK))


def _header(path: str, kind: bytes, mode: int, size: int, target: str) -> bytes:
    name = path.encode()
    prefix = b""
    if len(name) > 100:
        cut = name.index(b"/", len(name) - 101)
        prefix, name = name[:cut], name[cut + 1 :]
    fields = [
        name.ljust(100, b"\0"),
        b"%07o\0" % mode,
        b"%07o\0" % 0,
        b"%07o\0" % 0,
        b"%011o\0" % size,
        b"%011o\0" % SOURCE_DATE_EPOCH,
        b" " * 8,  # checksum, filled in below
        kind,
        target.encode().ljust(100, b"\0"),
        b"ustar\x0000",
        b"root".ljust(32, b"\0"),
        b"root".ljust(32, b"\0"),
        b"%07o\0" % 0,
        b"%07o\0" % 0,
        prefix.ljust(155, b"\0"),
    ]
    raw = b"".join(fields).ljust(_BLOCK, b"\0")
    return raw[:148] + b"%06o\0 " % sum(raw) + raw[156:]
