"""NVIDIA's stack on one node: driver, GPUs and their settings, fabric, the daemons beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bringup.parsers import cuda, fabric, host, loader, machine, modules, nvidia, packages, smi, smi_text, texts
from bringup.parsers.parsed import Item, Parsed, Slots, one_of, slot
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Layer, Unreadable

__all__ = ["attributes", "items"]

_SMI = "nvidia-smi -q -x"


def items(parsed: Parsed, slots: Slots) -> Iterator[Item]:
    """Facts of driver, toolkit, daemons and GPUs."""
    yield from _driver(parsed)
    yield from _daemons(parsed)
    yield "cuda", Layer.ONDISK, None, cuda.toolkit(parsed.files), "/usr/local/cuda/version.json"
    yield "cuda.compat", Layer.ONDISK, None, _compat(parsed), "/usr/local/cuda/compat"
    for name, module in (("peermem", "nvidia_peermem"), ("gdrdrv", "gdrdrv"), ("gds", "nvidia_fs")):
        yield from _module(parsed, name, module)
    yield from _gpus(parsed, slots)


def _driver(parsed: Parsed) -> Iterator[Item]:
    ondisk = modules.ondisk(parsed.built, "nvidia")
    yield "driver", Layer.RUNNING, None, parsed.running, "/sys/module/nvidia/version"
    yield "driver", Layer.ONDISK, None, ondisk, "modinfo -F version nvidia"
    yield "driver", Layer.LIBRARY, None, _user_mode(parsed), "libcuda.so.1, libnvidia-ml.so.1"
    flavour: Raw = parsed.flavour or (ABSENT if isinstance(parsed.running, Absent) else Unreadable("not said"))
    yield "driver.flavour", Layer.RUNNING, None, flavour, "/proc/driver/nvidia/version"
    built = None if isinstance(parsed.built, Unreadable) else parsed.built.get("nvidia")
    if built is not None:
        licence = built.flavour or Unreadable(f"licence {built.license[:60]!r}")
        yield "driver.flavour", Layer.ONDISK, None, licence, "modinfo -F license nvidia"
    elif isinstance(ondisk, Absent):
        yield "driver.flavour", Layer.ONDISK, None, ABSENT, "modinfo -F license nvidia"
    yield "driver.gsp", Layer.ONDISK, None, _gsp_ondisk(parsed, ondisk), "/lib/firmware/nvidia"
    parameters = nvidia.parameters(parsed.files)
    yield "settings.driver-params", Layer.RUNNING, None, parameters, "/proc/driver/nvidia/params"


def _user_mode(parsed: Parsed) -> Raw:
    """Of the two libraries that every program of the driver loads; different ones both."""
    found = [loader.by_file_name(parsed.libraries, name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    if isinstance(parsed.libraries, Unreadable):
        return parsed.libraries
    versions = [value for value in found if isinstance(value, str)]
    unread = [value for value in found if isinstance(value, Unreadable)]
    return one_of(versions) if versions or not unread else unread[0]


def _gsp_ondisk(parsed: Parsed, ondisk: Raw) -> Raw:
    """Firmware for the module on disk; without it the next load fails ("No firmware image found")."""
    text = machine.text_of(parsed.files, "gsp")
    if text is None:
        return Unreadable(host.NOT_ASKED)
    there = text.split()
    if isinstance(ondisk, str) and ondisk in there:
        return ondisk
    return max(there, key=texts.version_key) if there else ABSENT


def _compat(parsed: Parsed) -> Raw:
    text = machine.text_of(parsed.files, "compat")
    if text is None:
        return Unreadable(host.NOT_ASKED)
    found = [name.removeprefix("libcuda.so.") for name in text.split()]
    return max(found, key=texts.version_key) if found else ABSENT


def _module(parsed: Parsed, component: str, module: str) -> Iterator[Item]:
    running = modules.running(parsed.files, module, parsed.kernel)
    yield component, Layer.RUNNING, None, running, f"/sys/module/{module}"
    yield component, Layer.ONDISK, None, modules.ondisk(parsed.built, module), f"modinfo {module}"


def _daemons(parsed: Parsed) -> Iterator[Item]:
    """On disk, and running where they run: a GB200 tray has no fabric manager, an idle node no IMEX."""
    record = parsed.record
    entries = (
        ("fabricmanager", "nv-fabricmanager", texts.tool_version(record("fabricmanager"), "version")),
        ("nvlsm", "nvlsm", fabric.nvlsm(record("nvlsm"))),
        ("imex", "nvidia-imex", texts.tool_version(record("imex"), "version")),
        ("dcgm", "nv-hostengine", fabric.dcgm(record("dcgm"))),
    )
    for component, program, ondisk in entries:
        yield component, Layer.ONDISK, None, ondisk, f"{program} --version"
        running = host.daemon(parsed.holders, program, ondisk)
        source = "/proc/*/exe"
        if component == "imex" and isinstance(domain := fabric.imex_domain(record("imex_domain")), str):
            running, source = domain, "nvidia-imex-ctl -N -j"
        if not isinstance(running, Absent):
            yield component, Layer.RUNNING, None, running, source


def _gpus(parsed: Parsed, slots: Slots) -> Iterator[Item]:
    seen = parsed.seen
    if isinstance(seen, Unreadable):
        reason = Unreadable("driver not running") if isinstance(parsed.running, Absent) else seen
        yield from (("firmware.gpu", Layer.RUNNING, name, reason, _SMI) for name in slots.gpus.values())
        return
    gsp = [gpu.gsp for gpu in seen.gpus if gpu.gsp]
    if gsp:
        yield "driver.gsp", Layer.RUNNING, None, one_of(gsp), _SMI
    there = set()
    for index, gpu in enumerate(seen.gpus):
        name = slot(gpu.address, slots.gpus)
        there.add(name)
        yield "firmware.gpu", Layer.RUNNING, name, gpu.vbios, _SMI
        if gpu.lost:
            continue
        if gpu.inforom is not None:
            yield "firmware.inforom", Layer.RUNNING, name, gpu.inforom, _SMI
        yield from _gpu_settings(gpu, name)
        links = {} if isinstance(parsed.nvlink, Unreadable) else parsed.nvlink.get(index, {})
        if "NETIR" in links:
            yield "firmware.nvlink", Layer.RUNNING, name, links["NETIR"], "nvidia-smi nvlink -info"
    if parsed.asked("conf_compute"):
        mode = smi_text.conf_compute(parsed.record("conf_compute"))
        yield from (("settings.cc", Layer.RUNNING, name, mode, "nvidia-smi conf-compute -f") for name in there)
    missing = [name for name in slots.gpus.values() if name not in there]
    yield from (("firmware.gpu", Layer.RUNNING, name, ABSENT, _SMI) for name in missing)


def _gpu_settings(gpu: smi.Gpu, name: str) -> Iterator[Item]:
    places = (
        ("settings.power-limit", Layer.RUNNING, "power-limit"),
        ("settings.ecc", Layer.RUNNING, "ecc"),
        ("settings.ecc", Layer.FLASHED, "ecc.next"),
        ("settings.mig", Layer.RUNNING, "mig"),
        ("settings.mig", Layer.FLASHED, "mig.next"),
        ("settings.clocks", Layer.RUNNING, "clocks"),
    )
    for component, layer, key in places:
        if key in gpu.settings:
            yield component, layer, name, gpu.settings[key], _SMI


def attributes(parsed: Parsed, slots: Slots) -> Iterator[tuple[str, str]]:
    """Further readings: GPUs by slot, fabric, IMEX, next kernel, library copies."""
    if parsed.flavour or (built := _built_flavour(parsed)):
        yield "driver.flavour", parsed.flavour or str(built)
    yield from _next_kernel(parsed)
    listed = modules.dkms(parsed.record("dkms"))
    mine = [one for one in listed if one.module == "nvidia"] if not isinstance(listed, Unreadable) else []
    if mine:
        yield "dkms.nvidia", ";".join(sorted(f"{one.version} {one.kernel or '-'} {one.state}" for one in mine))
    copies = [*loader.copies(parsed.libraries, "libcuda.so.1"), *loader.copies(parsed.libraries, "libnvidia-ml.so.1")]
    if copies:
        yield "driver.libraries", ",".join(copies)
    source = parsed.files.get("/sys/module/nvidia/srcversion")
    if isinstance(source, str) and re.fullmatch("[0-9A-F]{6,40}", source.strip()):
        yield "driver.srcversion", source.strip()
    toolkits = cuda.toolkits(parsed.files)
    if toolkits:
        yield "cuda.toolkits", ",".join(toolkits)
    if isinstance(parsed.database, packages.Packages):
        telemetry = packages.version_in_names(parsed.database, "datacenter-gpu-manager-4-cuda{version}")
        yield "dcgm.cuda", ",".join(telemetry)
    parameters = nvidia.parameters(parsed.files)
    if not isinstance(parameters, Unreadable):
        yield "driver.params", parameters if isinstance(parameters, str) else ""
    yield from _imex(parsed)
    yield from _running_daemons(parsed)
    if isinstance(parsed.seen, smi.Smi):
        yield from _gpu_attributes(parsed.seen, slots)
        yield from _fabric(parsed.seen, slots)
        pairs = smi_text.topology(parsed.record("topology")) if parsed.asked("topology") else {}
        if pairs and not isinstance(pairs, Unreadable):
            yield "topology", texts.fingerprint({" ".join(pair): way for pair, way in pairs.items()})[0]
        links = {} if isinstance(parsed.nvlink, Unreadable) else parsed.nvlink
        for index, gpu in enumerate(parsed.seen.gpus):
            if links.get(index):
                parts = sorted(links[index].items())
                yield f"gpu.{slot(gpu.address, slots.gpus)}.nvlink", ";".join(f"{part}={text}" for part, text in parts)


def _built_flavour(parsed: Parsed) -> str | None:
    built = None if isinstance(parsed.built, Unreadable) else parsed.built.get("nvidia")
    return built.flavour if built is not None else None


def _next_kernel(parsed: Parsed) -> Iterator[tuple[str, str]]:
    """``driver.for.KERNEL``: the module for each kernel that a boot may bring, empty when it has none; and the next."""
    found: dict[str, str] = {}
    record = parsed.record("next_modules")
    if not isinstance(record, Unreadable):
        for line in record.text.splitlines():
            kernel, _, version = line.partition(" ")
            if kernel:
                found[kernel] = version.strip()
    ondisk = modules.ondisk(parsed.built, "nvidia")
    if isinstance(parsed.kernel, str) and not isinstance(ondisk, Unreadable):
        found[parsed.kernel] = ondisk if isinstance(ondisk, str) else ""
    yield from ((f"driver.for.{kernel}", version) for kernel, version in found.items())
    if isinstance(parsed.next_kernel, str) and parsed.next_kernel in found:
        yield "driver.next-kernel", found[parsed.next_kernel] or "absent"


def _imex(parsed: Parsed) -> Iterator[tuple[str, str]]:
    text = machine.text_of(parsed.files, "/etc/nvidia-imex/nodes_config.cfg")
    digest = fabric.imex_nodes(text)
    if not isinstance(digest, str) and (text is not None or "cpu" in parsed.files):
        # The probe shows the file where there is one; the package brings it without a node.
        yield "imex.nodes", ""
    if isinstance(digest, str) and text is not None:
        yield "imex.nodes", digest
        yield "imex.nodes.count", str(sum(1 for line in text.splitlines() if line.partition("#")[0].strip()))
    for key, value in fabric.imex_domain_state(parsed.record("imex_domain")).items():
        yield {"state": "imex.domain", "nodes": "imex.domain.nodes", "waiting": "imex.domain.waiting"}[key], value
    record = parsed.record("holders")
    match = (
        None
        if isinstance(record, Unreadable)
        else re.search(r"^#imex ([0-9]{1,12}) (-?[0-9]{1,12})$", record.text, re.M)
    )
    if match is not None:
        # A second of grace: both ages are rounded.
        yield "imex.config-newer", "yes" if int(match[2]) + 1 < int(match[1]) else "no"


def _running_daemons(parsed: Parsed) -> Iterator[tuple[str, str]]:
    if isinstance(parsed.holders, Unreadable):
        return
    daemons = [holder for holder in parsed.holders if holder.daemon]
    if daemons:
        yield "daemons", texts.distinct(holder.service for holder in daemons)
    yield from ((f"daemon.{holder.service}.replaced", "yes") for holder in daemons if holder.replaced)


def _gpu_attributes(seen: smi.Smi, slots: Slots) -> Iterator[tuple[str, str]]:
    """``gpus``: those that answer, in slot order; a GPU that fell off the bus is not among them."""
    # What the user-mode side says: another number than the loaded module's means that the libraries were exchanged.
    yield from ((key, value) for key, value in (("smi.driver", seen.driver), ("smi.cuda", seen.cuda)) if value)
    named = [(slot(gpu.address, slots.gpus), gpu) for gpu in seen.gpus]
    order = {name: index for index, name in enumerate(slots.gpus.values())}
    named.sort(key=lambda pair: (order.get(pair[0], len(order)), pair[0]))
    yield "gpus", ",".join(name for name, gpu in named if not gpu.lost)
    yield "gpu.count", str(sum(1 for _, gpu in named if not gpu.lost))
    together = {
        "gpu.product": texts.distinct(gpu.product for gpu in seen.gpus),
        "gpu.architecture": texts.distinct(gpu.architecture for gpu in seen.gpus),
    }
    yield from ((key, value) for key, value in together.items() if value)
    for name, gpu in named:
        yield f"gpu.{name}.pci", gpu.address
        if gpu.lost:
            yield f"gpu.{name}.lost", "yes"
        values = {
            "uuid": gpu.uuid,
            "serial": gpu.serial,
            "product": gpu.product,
            "architecture": gpu.architecture,
            "addressing": gpu.addressing,
            "gsp": gpu.gsp,
            "recovery": gpu.recovery,
            "part": gpu.part,
            "tray": gpu.tray,
            "module": gpu.module,
            "c2c": gpu.settings.get("c2c"),
        }
        yield from ((f"gpu.{name}.{key}", value) for key, value in values.items() if value)
        yield from ((f"gpu.{name}.fabric.{key}", value) for key, value in smi.fabric_of(gpu).items())
    yield from smi.fabric(seen.gpus).items()


def _fabric(seen: smi.Smi, slots: Slots) -> Iterator[tuple[str, str]]:
    """``fabric.verdict``: ``ok`` or the first thing that is wrong, with its slot; nothing where there is no fabric."""
    found = [(slot(gpu.address, slots.gpus), fabric.condition(slots.nvlink, smi.fabric_of(gpu))) for gpu in seen.gpus]
    bad = [f"{name}: {reason}" for name, (good, reason) in found if good is False]
    if bad:
        yield "fabric.verdict", bad[0]
    elif any(good for _, (good, _) in found):
        yield "fabric.verdict", "ok"
