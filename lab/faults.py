"""What can go wrong on a node, made to happen, and undone.

Everything here acts inside the node, entered by its namespaces: real apt, real files, real signals.
Nothing touches what Lockstep itself keeps. What was done is noted in the machine's ``faults`` folder
(one file per kind), so that `mend` undoes it and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import hardware, labs, marks, nodes, packages, spec
from lockstep.base import errors

__all__ = ["Kind", "break_node", "mend_node"]

DRIVER_FAMILY = ("nvidia-kernel-open-dkms", "libnvidia-ml1", "libcuda1", "nvidia-driver-cuda")
FAMILIES: tuple[tuple[str, ...], ...] = (
    DRIVER_FAMILY,
    ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"),
)
"""Packages that depend on each other's exact version and so change together."""
FAULTS = "/run/lockstep-lab/machine/faults"


Kind = marks.Kind


@dataclass(frozen=True, slots=True)
class _Scene:
    """One node in whose namespaces scripts run."""

    state: Path
    name: str

    def run(self, script: str, *arguments: str) -> str:
        """Standard output of a shell script run inside the node; raises `errors.EngineError` when it fails."""
        command = nodes.enter(self.state, self.name, ["sh", "-euc", script, "sh", *arguments])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise errors.EngineError(
                f"a command inside {self.name} ended with {done.returncode}: {_tail(done.stderr or done.stdout)}"
            )
        return done.stdout

    @property
    def notes(self) -> Path:
        """The machine's faults, one file per kind."""
        return marks.folder(self.state, self.name)

    def note(self, kind: Kind) -> str:
        """What was noted when the fault was made."""
        return (self.notes / kind).read_text()


def _tail(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-3:])


def break_node(
    state: Path,
    name: str,
    kind: Kind,
    *,
    package: str | None = None,
    version: str | None = None,
    slot: str | None = None,
) -> str:
    """Make ``kind`` happen on the node; returns one line that says what was done.

    ``package`` (and ``version``) are for `other-version`, ``package`` also for `hold-removed`, ``slot`` for the two
    kinds that hit one GPU.
    Raises `errors.InputError` (no such node, package or GPU), `errors.RefusedError` (the node is off, or
    broken so already).
    """
    spec.read(state).node(name)
    scene = _Scene(state, name)
    if kind in marks.standing(state, name):
        raise errors.RefusedError(f"{name} is broken by {kind} already", hint=f"lockstep lab mend {name}")
    if kind in (Kind.OTHER_VERSION, Kind.UPGRADED_NOT_REBOOTED):
        chosen = DRIVER_FAMILY[0] if kind is Kind.UPGRADED_NOT_REBOOTED else package or "libnccl2"
        return _change_version(scene, kind, chosen, version)
    if kind in (Kind.GPU_FIRMWARE, Kind.GPU_LOST):
        return _hit_gpu(scene, kind, slot)
    if kind is Kind.HOLD_REMOVED:
        return _remove_hold(scene, package)
    return _SIMPLE[kind](scene)


def _family(package: str) -> tuple[str, ...]:
    return next((family for family in FAMILIES if package in family), (package,))


def _installed(scene: _Scene, names: Sequence[str]) -> dict[str, str]:
    """Package → version of those that are installed."""
    script = "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n' \"$@\" 2>/dev/null || true"
    rows = [line.split() for line in scene.run(script, *names).splitlines()]
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0][1:] == "i"}


_INSTALL = """
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
held=$(apt-mark showhold)
apt-get -qq install -y --allow-downgrades --allow-change-held-packages -o Dpkg::Use-Pty=0 "$@" >/dev/null
[ -z "$held" ] || apt-mark -qq hold $held >/dev/null
"""


def _change_version(scene: _Scene, kind: Kind, package: str, version: str | None) -> str:
    known = [found.version for found in packages.all_packages() if found.name == package]
    if not known:
        raise errors.InputError(f"the lab's repository has no package {package}")
    before = _installed(scene, _family(package))
    if package not in before:
        raise errors.RefusedError(f"{scene.name} has no {package} installed", hint="bring it up first: lockstep up lab")
    others = [found for found in known if found != before[package]]
    if version is not None and version not in others:
        raise errors.InputError(f"{package} {version} is not another version in the repository", hint=", ".join(others))
    now = version or _neighbour(known, before[package])
    scene.run(_INSTALL, *(f"{name}={now}" for name in before))
    note = "".join(f"{name} {was} {now}\n" for name, was in before.items())
    scene.run(f'printf %s "$1" >{FAULTS}/{kind}', note)
    return f"{scene.name}: {package} {before[package]} → {now} by apt" + (
        ", not rebooted" if kind is Kind.UPGRADED_NOT_REBOOTED else ""
    )


def _neighbour(known: Sequence[str], current: str) -> str:
    """The next version of the same series, else the one before: the skew that is easiest to overlook."""
    series = current.partition(".")[0]
    near = [version for version in known if version.partition(".")[0] == series or version == current]
    if near == [current]:
        near = list(known)
    at = near.index(current)
    return near[at + 1] if at + 1 < len(near) else near[at - 1]


_REPLACE_GPU = """
file=/run/lockstep-lab/machine/gpus
awk -F '\\t' -v OFS='\\t' -v slot="$1" -v column="$2" -v value="$3" \\
    '$1 == slot { $column = value } { print }' $file >$file.new
mv $file.new $file
"""


def _hit_gpu(scene: _Scene, kind: Kind, slot: str | None) -> str:
    cards = {card.slot: card for card in hardware.gpus(scene.notes.parent)}
    card = cards.get(slot) if slot else list(cards.values())[-1]
    if card is None:
        raise errors.InputError(f"{scene.name} has no GPU {slot}", hint=f"its GPUs: {', '.join(cards)}")
    if kind is Kind.GPU_FIRMWARE:
        head, _, last = card.vbios.rpartition(".")
        other = f"{head}.{(int(last, 16) + 1) % 256:02X}"
        scene.run(_REPLACE_GPU + f'echo "$1 $4" >{FAULTS}/{kind}', card.slot, "6", other, card.vbios)
        return f"{scene.name}: VBIOS of {card.slot} {card.vbios} → {other}"
    script = _REPLACE_GPU + f'rm -rf "/sys/bus/pci/devices/$4"; echo "$1 $4" >{FAULTS}/{kind}'
    scene.run(script, card.slot, "7", "lost", card.pci)
    return f"{scene.name}: {card.slot} ({card.pci}) fell off the bus"


def _hang_sshd(scene: _Scene) -> str:
    # A stopped listener: the kernel still accepts, and nobody ever sends a banner.
    scene.run(f'kill -STOP "$(cat /run/sshd.pid)"; : >{FAULTS}/{Kind.SSHD_HUNG}')
    return f"{scene.name}: sshd accepts connections and says nothing"


def _kill_node(scene: _Scene) -> str:
    scene.run(f": >{FAULTS}/{Kind.NODE_DEAD}")
    pid = nodes.pid1(scene.state, scene.name)
    if pid is not None:
        # From outside: a pid namespace shields its pid 1 from everything inside.
        os.kill(pid, signal.SIGKILL)
    nodes.power_off(scene.state, scene.name)
    return f"{scene.name}: pid 1 killed, the node stays off"


def _change_host_key(scene: _Scene) -> str:
    script = f"""
cd /etc/ssh
for file in ssh_host_ed25519_key ssh_host_ed25519_key.pub; do mv $file $file.before; done
ssh-keygen -q -t ed25519 -N '' -C "root@$(hostname)" -f ssh_host_ed25519_key
kill -HUP "$(cat /run/sshd.pid)"
: >{FAULTS}/{Kind.HOST_KEY}
cat ssh_host_ed25519_key.pub
"""
    return f"{scene.name}: sshd now shows another host key: {' '.join(scene.run(script).split()[:2])}"


def _hang_smi(scene: _Scene) -> str:
    scene.run(f": >{FAULTS}/{Kind.SMI_HANGS}")
    return f"{scene.name}: nvidia-smi hangs, ignores TERM and keeps its output open"


def _remove_hold(scene: _Scene, package: str | None) -> str:
    held = scene.run("apt-mark showhold").split()
    chosen = package or ("libnccl2" if "libnccl2" in held else next(iter(held), None))
    if chosen is None or chosen not in held:
        what = f"does not hold {chosen}" if chosen else "holds no package"
        raise errors.RefusedError(f"{scene.name} {what}", hint="bring it up first: lockstep up lab")
    family = [name for name in _family(chosen) if name in held]
    scene.run(f'apt-mark -qq unhold "$@" >/dev/null; printf "%s\\n" "$@" >{FAULTS}/{Kind.HOLD_REMOVED}', *family)
    return f"{scene.name}: {', '.join(family)} {'is' if len(family) == 1 else 'are'} no longer held"


_SHADOW = f"""
scratch=$(mktemp -d)
dpkg-deb -x "$1" "$scratch"
for file in "$scratch"{packages.LIBRARIES}/libnccl.so.*; do
    cp -P "$file" "$2/"
    echo "$2/${{file##*/}}" >>{FAULTS}/{Kind.NCCL_SHADOWED}
done
rm -rf "$scratch"
ldconfig
"""
_EARLIER = "/usr/local/lib"
"""Debian's loader looks here before the folders of packages."""


def _shadow_nccl(scene: _Scene) -> str:
    before = _installed(scene, ["libnccl2"]).get("libnccl2")
    if before is None:
        raise errors.RefusedError(f"{scene.name} has no libnccl2 installed", hint="bring it up first: lockstep up lab")
    known = [found for found in packages.all_packages() if found.name == "libnccl2"]
    other = _neighbour([found.version for found in known], before)
    (package,) = (found for found in known if found.version == other)
    scene.run(_SHADOW, f"{scene.state}/repository/{package.file_name}", _EARLIER)
    return f"{scene.name}: libnccl.so.2 of {other} lies in {_EARLIER}, before that of package libnccl2 {before}"


def _fill_disk(scene: _Scene) -> str:
    # /tmp alone is a file system of the node's own: its root lies on this machine's disk, which is not ours to fill.
    script = f"mount -o remount,size=1m /tmp; head -c 2m /dev/zero >/tmp/core.4711 2>/dev/null || :; : >{FAULTS}/"
    scene.run(script + Kind.DISK_FULL)
    return f"{scene.name}: /tmp is full"


_SIMPLE: Mapping[Kind, Callable[[_Scene], str]] = {
    Kind.SSHD_HUNG: _hang_sshd,
    Kind.NODE_DEAD: _kill_node,
    Kind.HOST_KEY: _change_host_key,
    Kind.SMI_HANGS: _hang_smi,
    Kind.NCCL_SHADOWED: _shadow_nccl,
    Kind.DISK_FULL: _fill_disk,
}


def mend_node(state: Path, name: str) -> list[str]:
    """Undo every fault of the node; returns a line per fault. A dead node is booted first."""
    spec.read(state).node(name)
    scene = _Scene(state, name)
    found = marks.noted(state, name)
    done = []
    if Kind.NODE_DEAD in found:
        labs.power_on(state, name)
        (scene.notes / Kind.NODE_DEAD).unlink(missing_ok=True)
        # Booting ends what only lived in the running system.
        found = marks.noted(state, name)
        done.append(f"{name}: booted")
    for kind in found:
        done.append(f"{name}: {_MEND[kind](scene)}")
        (scene.notes / kind).unlink(missing_ok=True)
    return done


_RELOAD = """
disk=$(modinfo -F version nvidia 2>/dev/null) || exit 0
loaded=$(cat /sys/module/nvidia/version 2>/dev/null) || exit 0
[ "$disk" = "$loaded" ] || { modprobe -r nvidia && modprobe nvidia && echo reloaded; } || echo busy
"""


def _mend_version(kind: Kind) -> Callable[[_Scene], str]:
    def mend(scene: _Scene) -> str:
        rows = [line.split() for line in scene.note(kind).splitlines()]
        installed = _installed(scene, [row[0] for row in rows])
        # Somebody else may have changed it since (`lockstep up` mends too): only what we did is undone.
        ours = [(package, was) for package, was, now in rows if installed.get(package) == now]
        if not ours:
            return f"{kind} was mended by somebody else already"
        scene.run(_INSTALL, *(f"{package}={was}" for package, was in ours))
        said = ", ".join(f"{package} {was}" for package, was in ours)
        if DRIVER_FAMILY[0] not in dict(ours):
            return f"{said} again"
        reload = scene.run(_RELOAD).strip()
        tail = {"reloaded": ", module reloaded", "busy": "; the module is in use: reboot to load it"}.get(reload, "")
        return f"{said} again{tail}"

    return mend


def _mend_firmware(scene: _Scene) -> str:
    slot, vbios = scene.note(Kind.GPU_FIRMWARE).split()
    scene.run(_REPLACE_GPU, slot, "6", vbios)
    return f"VBIOS of {slot} is {vbios} again"


def _mend_lost(scene: _Scene) -> str:
    slot, pci = scene.note(Kind.GPU_LOST).split()
    script = (
        _REPLACE_GPU + 'd=/sys/bus/pci/devices/$4; mkdir -p "$d"; echo 0x10de >"$d/vendor"; echo 0x030200 >"$d/class"'
    )
    scene.run(script, slot, "7", "ok", pci)
    return f"{slot} is back on the bus"


def _mend_sshd(scene: _Scene) -> str:
    scene.run('kill -CONT "$(cat /run/sshd.pid)"')
    return "sshd goes on"


def _mend_host_key(scene: _Scene) -> str:
    scene.run(
        "cd /etc/ssh; for file in ssh_host_ed25519_key ssh_host_ed25519_key.pub; do mv $file.before $file; done;"
        ' kill -HUP "$(cat /run/sshd.pid)"'
    )
    return "the host key is the old one again"


def _mend_smi(scene: _Scene) -> str:
    # The hanging ones look for the file once a second and end by themselves.
    scene.run(f"rm -f {FAULTS}/{Kind.SMI_HANGS}")
    return "nvidia-smi answers again"


def _mend_shadow(scene: _Scene) -> str:
    scene.run('rm -f "$@"; ldconfig', *scene.note(Kind.NCCL_SHADOWED).split())
    return "libnccl.so.2 is the package's again"


def _mend_hold(scene: _Scene) -> str:
    names = scene.note(Kind.HOLD_REMOVED).split()
    scene.run('apt-mark -qq hold "$@" >/dev/null', *names)
    return f"{', '.join(names)} held again"


def _mend_disk(scene: _Scene) -> str:
    scene.run('rm -f /tmp/core.4711; mount -o remount,size="$1" /tmp', "50%")
    return "/tmp has room again"


_MEND: Mapping[Kind, Callable[[_Scene], str]] = {
    Kind.OTHER_VERSION: _mend_version(Kind.OTHER_VERSION),
    Kind.UPGRADED_NOT_REBOOTED: _mend_version(Kind.UPGRADED_NOT_REBOOTED),
    Kind.GPU_FIRMWARE: _mend_firmware,
    Kind.GPU_LOST: _mend_lost,
    Kind.SSHD_HUNG: _mend_sshd,
    Kind.HOST_KEY: _mend_host_key,
    Kind.SMI_HANGS: _mend_smi,
    Kind.NCCL_SHADOWED: _mend_shadow,
    Kind.HOLD_REMOVED: _mend_hold,
    Kind.DISK_FULL: _mend_disk,
}
