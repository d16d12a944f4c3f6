"""The other ways of `audit_ssh`: each reads the same hosts, 50 at once, host keys verified, whole outputs kept.

OpenSSH is the system's, ClusterShell and Ansible are the project's own; asyncssh and pyinfra are installed into an
environment of their own in the cache when the benchmark first needs them.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.audit_ssh_site import Site
from lockstep.base import settings

__all__ = ["POOL", "WAYS", "Way"]

POOL = 50
"""Connections at once, for every way."""
HERE = Path(__file__).with_name("peers")
INSTALLED = ("asyncssh==2.24.1", "pyinfra==3.10.0")

Way = Callable[[Site, Sequence[str]], "list[str] | None"]
"""The command that reads the hosts; None: this peer cannot run here."""


def _openssh(site: Site, hosts: Sequence[str]) -> list[str] | None:
    if shutil.which("ssh") is None:
        return None
    words = " ".join(site.options)
    each = f'exec ssh {words} root@"$1" sh -s <{site.script} >{site.folder}/out/"$1"'
    listed = site.folder / "hosts"
    listed.write_text("".join(f"{host}\n" for host in hosts))
    return ["xargs", "-a", str(listed), "-P", str(POOL), "-n", "1", "sh", "-c", each, "sh"]


def _clush(site: Site, hosts: Sequence[str]) -> list[str] | None:
    program = Path(sys.executable).with_name("clush")
    if not program.exists() or shutil.which("ssh") is None:
        return None
    fed = f"cat {site.script} | {program} -f {POOL} -l root -N -o '{' '.join(site.options)}' -w {','.join(hosts)} sh -s"
    return ["sh", "-c", fed]


def _ansible(site: Site, hosts: Sequence[str], module: Sequence[str]) -> list[str] | None:
    program = Path(sys.executable).with_name("ansible")
    if not program.exists():
        return None
    (site.folder / "inventory").write_text("".join(f"{host}\n" for host in hosts))
    values = {
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=no " + " ".join(site.options),
        "ANSIBLE_REMOTE_USER": "root",
        "ANSIBLE_INVENTORY": str(site.folder / "inventory"),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }
    words = [f"{key}={value}" for key, value in values.items()]
    return ["env", *words, str(program), "all", "-f", str(POOL), "-m", *module]


def _raw(site: Site, hosts: Sequence[str]) -> list[str] | None:
    # The raw module takes one command line, and Ansible reads templates in it: the script travels in base64.
    text = base64.b64encode(site.script.read_bytes()).decode()
    return _ansible(site, hosts, ["raw", "-a", f"echo {text} | base64 -d | sh -s"])


def _setup(site: Site, hosts: Sequence[str]) -> list[str] | None:
    return _ansible(site, hosts, ["setup"])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _asyncssh(site: Site, hosts: Sequence[str]) -> list[str] | None:
    python = _environment()
    return [str(python), str(HERE / "asyncssh_client.py"), str(site.folder), *hosts] if python else None


def _pyinfra(site: Site, hosts: Sequence[str]) -> list[str] | None:
    python = _environment()
    if python is None:
        return None
    data = {
        "ssh_user": "root",
        "ssh_key": str(site.folder / "user"),
        "ssh_known_hosts_file": str(site.folder / "known_hosts"),
        "ssh_strict_host_key_checking": "yes",
        "ssh_config_file": "/dev/null",
    }
    (site.folder / "inventory.py").write_text(f"hosts = [(name, {data!r}) for name in {list(hosts)!r}]\n")
    (site.folder / "quoted").write_text("sh -c " + _quoted(site.script.read_text()))
    shutil.copy(HERE / "pyinfra_deploy.py", site.folder / "deploy.py")
    run = f"cd {site.folder} && exec {python.parent}/pyinfra -y --parallel {POOL} inventory.py deploy.py"
    return ["sh", "-c", run]


def _environment() -> Path | None:
    """Python of the environment that holds `INSTALLED`, made when it is missing; None when that fails."""
    digest = hashlib.sha256(" ".join((*INSTALLED, sys.version)).encode()).hexdigest()[:12]
    folder = settings.load().cache / "bench" / f"peers-{digest}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    uv = Path(sys.executable).with_name("uv")
    commands = [
        [str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
        [str(uv), "pip", "install", "--quiet", "--python", str(python), *INSTALLED],
    ]
    for command in commands:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except FileNotFoundError:
            print("asyncssh and pyinfra: no uv to install them with", file=sys.stderr)
            return None
        if done.returncode != 0:
            print(f"asyncssh and pyinfra cannot be installed: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return None
    (folder / "complete").touch()
    return python


WAYS: dict[str, tuple[Way, str]] = {
    "OpenSSH": (_openssh, '{"done":'),
    "ClusterShell": (_clush, '{"done":'),
    "asyncssh": (_asyncssh, '{"done":'),
    "pyinfra": (_pyinfra, '{"done":'),
    "Ansible raw": (_raw, '{"done":'),
    "Ansible setup": (_setup, '"ansible_facts": {'),
}
"""Name → command, and what marks one host's answer."""
