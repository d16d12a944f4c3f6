"""The file systems below every node: one Debian base tree, and over it a thin layer of lab tools.

Both are made once, atomically, in the cache, named by what they were made from, and never written
afterwards (they are lower layers of running overlays). The mirror is the host's own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab import debs, packages
from lockstep.base import errors

__all__ = ["base_tree", "guest_layer"]

GUEST = Path(__file__).with_name("guest")
SUITE = "bookworm"
INCLUDED = ("openssh-server", "python3-minimal", "python3-apt", "iproute2", "procps")
RECIPE = "1"
"""Counts changes of the recipe that its inputs do not show."""

Progress = Callable[[str], None]


def base_tree(cache: Path, progress: Progress) -> Path:
    """The Debian tree (190 MB, once per machine, 1 to 2 min). Raises `errors.EngineError` with the log's end."""
    kernel = _kernel_package()
    key = hashlib.sha256(
        "\n".join([RECIPE, SUITE, *INCLUDED, hashlib.sha256(kernel.content()).hexdigest()]).encode()
    ).hexdigest()[:16]
    tree = cache / "lab" / f"base-{key}"
    with _once(tree) as missing:
        if missing:
            progress(f"making the base tree of Debian 12 by mmdebstrap ({', '.join(INCLUDED)}): about a minute, once")
            _make_base(tree, kernel.content())
    return tree


def _kernel_package() -> debs.Package:
    wanted = f"linux-image-{packages.BASE_KERNEL}"
    return next(package for package in packages.all_packages() if package.name == wanted)


@contextmanager
def _once(tree: Path) -> Iterator[bool]:
    """Whether ``tree`` is missing, under a lock that a second process waits for."""
    tree.parent.mkdir(parents=True, exist_ok=True)
    with (tree.parent / f"{tree.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not tree.is_dir()


def _make_base(tree: Path, kernel: bytes) -> None:
    if shutil.which("mmdebstrap") is None:
        raise errors.EngineError("mmdebstrap is missing", hint="apt-get install mmdebstrap")
    for left in tree.parent.glob(f"{tree.name}.part-*"):
        shutil.rmtree(left)  # of a process that was killed: we hold the lock
    part = Path(tempfile.mkdtemp(prefix=f"{tree.name}.part-", dir=tree.parent))
    # Namespaces of its own take mmdebstrap's mounts and processes with it, however it or we end.
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    command += ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(INCLUDED)}"]
    command += [f"--aptopt={line}" for line in _proxies()]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")]
    with tempfile.NamedTemporaryFile(suffix=".deb") as deb:
        deb.write(kernel)
        deb.flush()
        command += [
            f"--customize-hook=copy-in {deb.name} /tmp",
            f'--customize-hook=chroot "$1" dpkg -i /tmp/{Path(deb.name).name}',
            f'--customize-hook=rm -f "$1"/tmp/{Path(deb.name).name} "$1"/etc/ssh/ssh_host_*'
            ' "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/99mmdebstrap'
            ' "$1"/etc/machine-id "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/usr/share/keyrings/debian-*removed*',
            SUITE,
            str(part / "tree"),
            *_host_sources(),
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-8:])
        shutil.rmtree(part)
        raise errors.EngineError(
            f"mmdebstrap ended with {done.returncode}:\n{tail}", hint="apt-get update must work on this machine"
        )
    (part / "tree").rename(tree)
    part.rmdir()


def _host_sources() -> list[str]:
    """The host's own Debian 12 sources as one-line entries."""
    form = "$(REPO_URI)|$(RELEASE)|$(CODENAME)|$(COMPONENT)|$(ORIGIN)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", form, "Created-By: Packages"], capture_output=True, text=True
    )
    found = []
    for line in listed.stdout.splitlines():
        uri, release, codename, component, origin = line.split("|")
        # Before the first `apt-get update` only what the sources name is known.
        known = codename if codename and not codename.startswith("$") else release
        if known.split("-")[0] == SUITE and (origin == "Debian" or origin.startswith("$") or not origin):
            found.append(f"deb {uri} {release} {component}")
    if not any(f" {SUITE} " in line for line in found):
        raise errors.EngineError(
            f"this machine's apt knows no mirror of Debian 12 ({SUITE}), and a lab's nodes are made from it",
            hint="run on Debian 12, after apt-get update",
        )
    return list(dict.fromkeys(found))


def _proxies() -> list[str]:
    """The host's proxy settings, as apt.conf lines."""
    dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True)
    return [line for line in dumped.stdout.splitlines() if line.startswith("Acquire::http") and "::Proxy " in line]


def guest_layer(cache: Path, base: Path) -> Path:
    """The layer of lab tools over ``base``, and beside it ``supervisor`` and ``init``; returns the folder of both.

    ``FOLDER/tree`` is the layer, ``FOLDER/supervisor`` starts a node.
    """
    files = dict(_guest_files())
    total = hashlib.sha256(base.name.encode())
    for name, data in sorted(files.items()):
        total.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
    folder = cache / "lab" / f"guest-{total.hexdigest()[:16]}"
    with _once(folder) as missing:
        if missing:
            part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
            part.chmod(0o755)
            _write_tree(part, files)
            # The stand-in for uname asks the real one for whatever is not the kernel's release.
            shutil.copy2(base / "usr/bin/uname", part / "tree/usr/lib/lockstep-lab/uname.real")
            part.rename(folder)
    return folder


def _guest_files() -> Iterator[tuple[str, bytes]]:
    for path in sorted(GUEST.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(GUEST)), path.read_bytes()


def _write_tree(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if data.startswith(b"#!") else 0o644)
    for parent, _, _ in os.walk(folder):
        Path(parent).chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)


def need_root(verb: str) -> None:
    """Raise `errors.InputError` for anyone but root."""
    if os.geteuid() != 0:
        raise errors.InputError(
            f"`lockstep {verb}` needs root: it makes namespaces and mounts", hint=f"sudo {sys.argv[0]} {verb}"
        )
