"""The environment that plain `pulumi` needs on a stack, and that `lockstep up` gives its own.

The same for both, so that project, stack, config and backend are the same whoever runs.
What a user has set is honoured; what an earlier `lockstep env` set is not taken for a wish.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lockstep.base import errors, programs, settings

__all__ = ["KUBERNETES_VERSION", "MARK", "Place", "cleaned", "shell", "variables"]

KUBERNETES_VERSION: Final = "4.25.0"
"""Of the wheel and of the plugin: one version everywhere (pyproject.toml, tools/pulumi-kubernetes)."""

MARK: Final = "LOCKSTEP_EXPORTED"
"""Lists what `lockstep env` set, as words NAME=VALUE, so that the next one can tell it from a user's own."""

_USERS: Final = ("PULUMI_BACKEND_URL", "PULUMI_HOME", "LOCKSTEP_STATE", "KUBECONFIG")
"""A user may set these; then they hold."""

_PASSPHRASES: Final = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")

_FIXED: Final = {
    "PULUMI_SKIP_UPDATE_CHECK": "true",
    # A missing plugin is an error that names it, not a download.
    "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
    "PULUMI_CREDENTIAL_STORE": "plaintext",
}


class Place:
    """Where one environment's state lies: a lab's own folder, else the checkout's."""

    def __init__(self, state: Path, extra: Mapping[str, str], *, fixed: bool) -> None:
        self.state = state
        self.extra = dict(extra)
        """Further variables of the environment (a lab's KUBECONFIG)."""
        self.fixed = fixed
        """A lab's state is the lab's, whatever LOCKSTEP_STATE says."""


def variables(place: Place, where: settings.Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Name → value of all variables, `MARK` and PATH included. Makes the folders it names.

    Raises `errors.EngineError` when the Kubernetes plugin is missing and the environment has a cluster.
    """
    checkout = where.need_checkout("env")
    own = _own(environ)
    chosen: dict[str, str] = {"LOCKSTEP_STATE": str(place.state), **place.extra}
    if not place.fixed:
        chosen |= {name: environ[name] for name in ("LOCKSTEP_STATE", "KUBECONFIG") if name in own}
        if chosen.get("KUBECONFIG"):
            chosen["KUBECONFIG"] = os.path.abspath(os.path.expanduser(chosen["KUBECONFIG"]))
    state = Path(chosen["LOCKSTEP_STATE"]).absolute()
    backend = state / "pulumi"
    for folder in (state, backend):
        _private(folder)
    chosen["LOCKSTEP_STATE"] = str(state)
    chosen["PULUMI_BACKEND_URL"] = own.get("PULUMI_BACKEND_URL", f"file://{backend}")
    chosen["PULUMI_HOME"] = own.get("PULUMI_HOME", str(where.cache / "pulumi-home"))
    if not any(name in own for name in _PASSPHRASES):
        # No secret is in the state, so the passphrase guards nothing; it is empty in every environment.
        chosen["PULUMI_CONFIG_PASSPHRASE"] = ""
    if chosen.get("KUBECONFIG"):
        place_kubernetes_plugin(Path(chosen["PULUMI_HOME"]))
    marked = [f"{name}={chosen[name]}" for name in (*_USERS, *_PASSPHRASES) if name in chosen and name not in own]
    path = [str(checkout / ".venv" / "bin")]
    path += [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if part not in path]
    if shutil.which("pulumi", path=os.pathsep.join(path)) is None:
        path.insert(1, str(programs.find("pulumi").parent))
    return {**chosen, **_FIXED, "PATH": os.pathsep.join(path), MARK: shlex.join(marked)}


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without what an earlier `lockstep env` set: another environment's state is nobody's wish."""
    own = _own(environ)
    return {name: value for name, value in environ.items() if name in own or name not in (*_USERS, *_PASSPHRASES)}


def _own(environ: Mapping[str, str]) -> dict[str, str]:
    """What the user set: variables whose value is not what an earlier `lockstep env` gave them."""
    earlier = dict(word.split("=", 1) for word in shlex.split(environ.get(MARK, "")) if "=" in word)
    return {
        name: environ[name]
        for name in (*_USERS, *_PASSPHRASES)
        if name in environ and (environ[name] or name in _PASSPHRASES) and environ[name] != earlier.get(name)
    }


def shell(values: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """`export` lines for a POSIX shell, quoted; what an earlier environment set and this one lacks is unset."""
    earlier = [word.partition("=")[0] for word in shlex.split(environ.get(MARK, ""))]
    gone = [f"unset {name}" for name in earlier if name in (*_USERS, *_PASSPHRASES) and name not in values]
    return "\n".join([*gone, *(f"export {name}={shlex.quote(value)}" for name, value in sorted(values.items()))])


_LAUNCHER: Final = """\
#!/bin/sh
# Lockstep's launcher: the provider does not see when its engine is killed, and would stay for good.
# A dead engine that nobody has waited for is still a process, but no longer a parent.
engine=$PPID
(while read -r _ _ _ parent _ </proc/$$/stat; do
  [ "$parent" = "$engine" ] || {{ kill $$; break; }}
  sleep 1
done) </dev/null >/dev/null 2>&1 &
exec {program} "$@"
"""


def place_kubernetes_plugin(home: Path) -> None:
    """Put the Kubernetes provider where the engine looks for it: a script that starts the one we built."""
    program = programs.find("pulumi-resource-kubernetes")
    launcher = home / "plugins" / f"resource-kubernetes-v{KUBERNETES_VERSION}" / "pulumi-resource-kubernetes"
    text = _LAUNCHER.format(program=shlex.quote(str(program.resolve()))).encode()
    try:
        if launcher.exists() and not launcher.is_symlink():
            with launcher.open("rb") as stream:
                start = stream.read(len(text) + 1)
            if start == text or b"Lockstep's launcher" not in start:
                return  # ours, or downloaded by the user's own engine: the same version
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f".{os.getpid()}")
        fresh.write_bytes(text)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    except OSError as error:
        raise errors.EngineError(
            f"cannot put the Kubernetes plugin there: {error.strerror}", place=str(launcher)
        ) from error


def _private(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise errors.InputError(f"cannot make {folder}: {error.strerror}", place="LOCKSTEP_STATE") from error
