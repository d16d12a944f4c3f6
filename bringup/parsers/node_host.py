"""What the host itself gives: operating system, kernel, containers, kubelet, boot settings, disks."""

from __future__ import annotations

from collections.abc import Iterator

from bringup.parsers import containers, host, machine, modules, texts
from bringup.parsers.parsed import Item, Parsed
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Layer, Unreadable

__all__ = ["attributes", "items"]


def items(parsed: Parsed) -> Iterator[Item]:
    """Facts of the host."""
    yield "os", Layer.RUNNING, None, _os(parsed), "/etc/os-release"
    yield "dgx-os", Layer.ONDISK, None, machine.dgx_release(parsed.files), "/etc/dgx-release"
    yield "kernel", Layer.RUNNING, None, parsed.kernel, "uname -r"
    yield "kernel", Layer.ONDISK, None, parsed.next_kernel, "/boot/vmlinuz-*"
    yield "firmware.bios", Layer.RUNNING, None, _file(parsed, "/sys/class/dmi/id/bios_version"), "/sys/class/dmi/id"
    yield from _containers(parsed)
    yield from _settings(parsed)


def _os(parsed: Parsed) -> Raw:
    if isinstance(parsed.os, Unreadable):
        return parsed.os
    return f"{parsed.os['ID']} {parsed.os.get('VERSION_ID', '')}".strip()


def _file(parsed: Parsed, path: str) -> Raw:
    value = host.file_of(parsed.files, path)
    return (value.strip() or Unreadable("empty")) if isinstance(value, str) else value


def _containers(parsed: Parsed) -> Iterator[Item]:
    record = parsed.record
    ondisk = containers.containerd(record("containerd"))
    simple: tuple[tuple[str, Raw, str], ...] = (
        ("container-toolkit", texts.tool_version(record("toolkit"), "version"), "nvidia-ctk --version"),
        ("containerd", ondisk, "containerd --version"),
        ("runc", texts.tool_version(record("runc"), "version"), "runc --version"),
        ("kubelet", texts.tool_version(record("kubelet")), "kubelet --version"),
        ("kubeadm", texts.tool_version(record("kubeadm")), "kubeadm version -o short"),
        ("cdi", containers.cdi_files(record("cdi"))[0], "/etc/cdi, /var/run/cdi"),
    )
    yield from ((name, Layer.ONDISK, None, value, source) for name, value, source in simple)
    name, runtime = containers.cri(record("cri"))
    if isinstance(runtime, str) and name == "containerd":
        yield "containerd", Layer.RUNNING, None, runtime, "crictl version"
    elif not isinstance(running := host.daemon(parsed.holders, "containerd", ondisk), type(ABSENT)):
        yield "containerd", Layer.RUNNING, None, running, "/proc/*/exe"


def _settings(parsed: Parsed) -> Iterator[Item]:
    line = host.file_of(parsed.files, "/proc/cmdline")
    arguments = machine.kernel_arguments(line) if isinstance(line, str) else line
    yield "settings.kernel-args", Layer.RUNNING, None, arguments, "/proc/cmdline"
    yield "settings.page-size", Layer.RUNNING, None, machine.page_size(parsed.files), "/proc/self/smaps"
    yield "settings.bios.iommu", Layer.RUNNING, None, machine.iommu(parsed.files), "/sys/class/iommu"
    nps = machine.nps(machine.cpu(parsed.files))
    if nps is not None:
        yield "settings.bios.nps", Layer.RUNNING, None, nps, "/sys/devices/system/node"
    if "cpu" in parsed.files:
        digest, _ = texts.fingerprint(machine.environment(parsed.files))
        # A login and a job that start now are given what the files hold now.
        for layer in (Layer.RUNNING, Layer.ONDISK):
            yield "settings.env", layer, None, digest, "/etc/nccl.conf, /etc/environment, /etc/profile.d"
    if parsed.asked("acs"):
        yield "settings.acs", Layer.RUNNING, None, machine.acs(parsed.record("acs")), "lspci -vvv"


def attributes(parsed: Parsed) -> Iterator[tuple[str, str]]:
    """Further readings of the host."""
    if not isinstance(parsed.os, Unreadable):
        for key, name in (("os.id", "ID"), ("os.version", "VERSION_ID"), ("os.name", "PRETTY_NAME")):
            if parsed.os.get(name):
                yield key, parsed.os[name]
    processor = machine.cpu(parsed.files)
    names = {"vendor": "cpu.vendor", "model": "cpu.model", "nodes": "numa.nodes", "sockets": "cpu.sockets"}
    yield from ((key, processor[name]) for name, key in names.items() if name in processor)
    taint = machine.taint_letters(parsed.files)
    if taint is not None:
        yield "kernel.tainted", taint[0]
        yield "kernel.taint", taint[1]
    optional = {
        "os.arch": parsed.machine,
        "machine": " ".join(filter(None, (_short(parsed, "sys_vendor"), _short(parsed, "product_name")))),
        "secure-boot": machine.secure_boot(parsed.files),
        "reboot-required": machine.reboot_required(parsed.files),
        "container.mode": containers.runtime_mode(
            machine.text_of(parsed.files, "/etc/nvidia-container-runtime/config.toml")
        ),
        "runtime": containers.cri(parsed.record("cri"))[0],
        "cdi.files": containers.cdi_files(parsed.record("cdi"))[1],
        "env": texts.fingerprint(machine.environment(parsed.files))[1],
    }
    yield from ((key, value) for key, value in optional.items() if value)
    uid = host.uid(parsed.files)
    if uid is not None:
        yield "user.root", "yes" if uid == 0 else "no"
        yield "root.by", parsed.rooted
    yield from _disks(parsed)
    yield from _log(parsed)
    yield from _modules(parsed)


def _short(parsed: Parsed, name: str) -> str | None:
    value = parsed.files.get(f"/sys/class/dmi/id/{name}")
    return value.strip()[:100] if isinstance(value, str) else None


def _disks(parsed: Parsed) -> Iterator[tuple[str, str]]:
    used = machine.disks(parsed.record("disks"))
    if isinstance(used, Unreadable):
        return
    for mount, percents in used.items():
        yield from ((f"disk.{mount}.{word}", str(percent)) for word, percent in percents.items())
    fullest = max(used, key=lambda mount: max(used[mount].values()))
    yield "disk.fullest", f"{fullest} {max(used[fullest].values())}"


def _log(parsed: Parsed) -> Iterator[tuple[str, str]]:
    record = parsed.record("log")
    if isinstance(record, Unreadable):
        return
    pair = machine.api_mismatch(record.text)
    if pair is not None:
        yield "kernel.api-mismatch", " ".join(pair)
    lines = record.text.splitlines()
    unfit = machine.symbol_mismatch(lines)
    # Without root a log may be closed to us: silence tells something only of one that was read.
    if unfit or "#read" in lines:
        yield "kernel.mismatch", ",".join(unfit)


def _modules(parsed: Parsed) -> Iterator[tuple[str, str]]:
    loaded = modules.loaded(parsed.files)
    built = {} if isinstance(parsed.built, Unreadable) else parsed.built
    if not isinstance(loaded, Unreadable):
        for name in sorted({*loaded, *built}):
            yield f"module.{name}.loaded", "yes" if name in loaded else "no"
    for name, module in built.items():
        if module.filename:
            yield f"module.{name}.origin", module.origin
        if module.vermagic:
            yield f"driver.vermagic.{name}", module.vermagic
