"""What the probe prints on a machine of the lab's kind, made from a lock: in step unless a test changes something."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from inventory import load as inventory_load
from inventory.model import Sku
from pinsets import load
from pinsets.model import Lock

SKU = "lab-gb200"
PINSET = "2026-09-lab-gb200"
OS = "debian-12-amd64"
BOOT = "4ced1d57-7882-49fa-b1cd-fbad5f1d3e41"
CLUSTER = "9f410827-0000-0000-0000-000000000001"


def lock() -> Lock:
    """The committed lock of the lab's first pool."""
    return load.lock(PINSET, OS)


def sku() -> Sku:
    """Its machine type."""
    return inventory_load.sku(SKU)


def fleet_file(folder: Path, nodes: Mapping[str, str], ssh: str = "{user: root, port: 22}") -> Path:
    """A fleet of one pool; ``nodes`` maps a name to further words of its entry."""
    entries = "".join(
        f"      {name}: {{address: 127.90.98.{index}, domain: r1{more}}}\n"
        for index, (name, more) in enumerate(nodes.items(), start=1)
    )
    path = folder / "test.yaml"
    path.write_text(
        f"fleet: test\nssh: {ssh}\npools:\n  - name: blackwell\n    sku: {SKU}\n    os: {OS}\n"
        f"    pinset: {PINSET}\n    nodes:\n{entries}"
    )
    return path


def answer(serial: str = "SN1", **changes: str | None) -> bytes:
    """JSON Lines of a node in step; ``changes`` replace what is read.

    Known: driver, ondisk, kernel, nccl, bios, boot, smi, admission, vbios0 … vbios3 (None: that GPU is gone).
    """
    found = lock()
    version = {pin.component: pin.version for pin in found.pins}
    driver = changes.get("driver") or version["driver"]
    kernel = changes.get("kernel") or version["kernel"]
    nccl = changes.get("nccl") or version["nccl"]
    records = {
        "host": _host(
            driver, kernel, serial, changes.get("admission"), changes.get("bios") or "1.0", changes.get("boot") or BOOT
        ),
        "kernel": f"{kernel} x86_64\n",
        "boot": "",
        "serial": "",
        "packages": _packages(found, nccl),
        "holders": "end\n",
        "module": _module(changes.get("ondisk") or driver, kernel),
        "next_modules": "",
        "libraries": _libraries(nccl, driver),
        "toolkit": f"NVIDIA Container Toolkit CLI version {version['container-toolkit']}\n",
        "kubelet": f"Kubernetes v{version['kubelet']}\n",
        "kubeadm": f"v{version['kubeadm']}\n",
        "imex": f"IMEX version is: {version['imex']}\n",
        "smi": changes.get("smi") or _smi(driver, version["firmware.gpu"], changes),
    }
    lines = [_line(name, text) for name, text in records.items() if text is not None]
    lines += [_line("fabricmanager", "", 127), _line("imex_domain", "", 127)]
    return b"\n".join([*lines, json.dumps({"done": len(lines)}).encode(), b""])


def abandoned(stream: bytes, name: str) -> bytes:
    """The same answer in which one command did not end."""
    lines = []
    for line in stream.splitlines():
        value = json.loads(line)
        if value.get("id") == name:
            value |= {"rc": -1, "ms": 8000, "out": "", "err": ""}
        lines.append(json.dumps(value).encode())
    return b"\n".join(lines)


def _line(name: str, text: str, rc: int = 0) -> bytes:
    out = base64.b64encode(text.encode()).decode()
    return json.dumps({"id": name, "rc": rc, "ms": 10, "out": out, "err": ""}).encode()


def _host(driver: str, kernel: str, serial: str, admission: str | None, bios: str, boot: str) -> str:
    files = {
        "/proc/sys/kernel/random/boot_id": boot,
        "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian',
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release",
        "/sys/module/nvidia/version": driver,
        "/usr/local/cuda/version.json": json.dumps({"cuda": {"version": lock_version("cuda")}}),
        "/sys/class/dmi/id/product_serial": serial,
        "/sys/class/dmi/id/bios_version": bios,
        "uid": "Uid:\t0\t0\t0\t0",
        "kernels": kernel,
    }
    if admission is not None:
        files["/var/lib/lockstep/admission.json"] = admission
    text = "".join(
        f"@{name}\n" + "".join(f" {line}\n" for line in content.split("\n")) for name, content in files.items()
    )
    return text if admission is not None else text + "-/var/lib/lockstep/admission.json\n"


def _module(version: str, kernel: str) -> str:
    return (
        f"filename:       /lib/modules/{kernel}/updates/dkms/nvidia.ko\nversion:        {version}\n"
        f"license:        Dual MIT/GPL\nvermagic:       {kernel} SMP preempt mod_unload modversions \n"
    )


def _libraries(nccl: str, driver: str) -> str:
    folder = "/usr/lib/x86_64-linux-gnu"
    files = {"libnccl.so.2": nccl, "libcuda.so.1": driver, "libnvidia-ml.so.1": driver}
    paths = "".join(f" {name} {folder}/{name}\n" for name in files)
    real = "".join(f" {folder}/{name} {folder}/{name.rpartition('.')[0]}.{to}\n" for name, to in files.items())
    return f"@paths\n{paths}@real\n{real}@strings\n{folder}/libnccl.so.{nccl}:NCCL version {nccl}+cuda13.0\n"


def lock_version(component: str) -> str:
    """The pinned version of a component."""
    pin = lock().pin(component)
    assert pin is not None
    return pin.version


def _packages(found: Lock, nccl: str) -> str:
    lines = []
    for package in found.packages:
        version = f"{nccl}-1+cuda13.0" if package.name == "libnccl2" else package.version
        lines.append(f"{package.name}\t{version}\thi \tamd64\n")
    return "#dpkg\n" + "".join(lines)


def _smi(driver: str, vbios: str, changes: Mapping[str, str | None]) -> str:
    gpus = []
    for index, address in enumerate(sku().gpus):
        own = changes.get(f"vbios{index}", vbios)
        if own is None:
            continue
        domain, _, rest = address.partition(":")
        gpus.append(
            f'<gpu id="{domain.rjust(8, "0")}:{rest.upper()}"><uuid>GPU-{index}</uuid><serial>165{index}</serial>'
            f"<vbios_version>{own}</vbios_version><fabric><state>Completed</state><status>Success</status>"
            f"<cliqueId>32766</cliqueId><clusterUuid>{CLUSTER}</clusterUuid></fabric></gpu>"
        )
    return f"<nvidia_smi_log><driver_version>{driver}</driver_version>{''.join(gpus)}</nvidia_smi_log>\n"
