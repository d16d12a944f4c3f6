"""The lab's stand-in packages: names, files and dependencies as the vendors', several versions each.

Names are those of NVIDIA's, Debian's and Kubernetes' repositories for Debian 12 (no branch number
in NVIDIA's names from driver 580 on). The tools inside are small scripts (`lab/stand_ins`) that answer
from what is installed on the node and from what was loaded at its last boot.

`build` gives the same bytes on any machine: a committed lock may name their sha256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from email.utils import formatdate
from functools import cache
from pathlib import Path

from lab import debs, elf, smi_forms
from lab.debs import Package

__all__ = ["BASE_KERNEL", "all_packages", "build", "digest", "index"]

STAND_INS = Path(__file__).with_name("stand_ins")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LDCONFIG = {"triggers": b"activate-noawait ldconfig\n"}

KERNELS = {"6.1.0-40-amd64": "6.1.153-1", "6.1.0-41-amd64": "6.1.158-1", "6.1.0-42-amd64": "6.1.159-1"}
"""Release as `uname -r` prints it → package version."""
BASE_KERNEL = "6.1.0-40-amd64"
"""Installed in the base image; the pins name a newer one, so that a fresh node needs a reboot."""
DRIVERS = {
    "535.309.01": "12.2",
    "550.163.01": "12.4",
    "560.35.05": "12.6",
    "570.86.15": "12.8",
    "570.148.08": "12.8",
    "575.57.08": "12.9",
    "580.95.05": "13.0",
    "580.105.08": "13.0",
    "580.126.20": "13.0",
    "590.48.01": "13.1",
    "595.71.05": "13.2",
    "610.43.02": "13.3",
    "610.57.04": "13.3",
    "610.71.05": "13.3",
}
"""Driver → highest CUDA its user-mode driver supports. Pins name 580 and 610; the others show the older forms."""
CUDA = {"13.0.1": "13.0.88", "13.0.2": "13.0.96", "13.3.0": "13.3.29", "13.3.1": "13.3.48"}
"""Toolkit → runtime (cudart)."""
NCCL = ("2.27.7+cuda13.0", "2.28.9+cuda13.0", "2.30.7+cuda13.3", "2.31.2+cuda13.3")
CONTAINER_TOOLKIT = ("1.17.8", "1.18.1", "1.19.0")
KUBERNETES = ("1.36.4", "1.37.0", "1.37.1")


@cache
def _text(name: str) -> str:
    return (STAND_INS / name).read_text()


def _fill(name: str, **values: str) -> bytes:
    """A file of `lab/stand_ins` with ``@KEY@`` replaced."""
    text = _text(name)
    for key, value in values.items():
        text = text.replace(f"@{key.upper()}@", value)
    return text.encode()


def _kernels() -> Iterator[Package]:
    for release, version in KERNELS.items():
        yield Package(
            name=f"linux-image-{release}",
            version=version,
            files={
                f"/boot/vmlinuz-{release}": f"stand-in kernel {release} ({version})\n".encode(),
                f"/boot/config-{release}": f"# Linux/x86 {release} Kernel Configuration\nCONFIG_SMP=y\n".encode(),
                f"/usr/lib/modules/{release}/modules.builtin": b"",
            },
            scripts={
                "postinst": _fill("kernel.postinst", release=release),
                "prerm": _fill("kernel.prerm", release=release),
            },
            section="kernel",
            description=f"Linux {release} (stand-in)",
        )
        yield Package(
            name="linux-image-amd64",
            version=version,
            files={},
            depends=(f"linux-image-{release} (= {version})",),
            section="kernel",
            description="Linux for 64-bit PCs, meta package (stand-in)",
        )


def _library(name: str, soname: str, version: str, payload: str = "") -> dict[str, bytes]:
    return {f"{LIBRARIES}/{name}.so.{version}": elf.shared_object(soname, payload.encode())}


def _drivers() -> Iterator[Package]:
    for driver, cuda in DRIVERS.items():
        version = f"{driver}-1"
        source = hashlib.sha256(driver.encode()).hexdigest().upper()[:23]
        yield Package(
            name="nvidia-kernel-open-dkms",
            version=version,
            files={
                f"/usr/src/nvidia-{driver}/dkms.conf": (
                    f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{driver}"\nAUTOINSTALL="yes"\n'
                ).encode(),
                f"/usr/src/nvidia-{driver}/srcversion": f"{source}\n".encode(),
                f"/usr/lib/firmware/nvidia/{driver}/gsp_ga10x.bin": f"stand-in GSP firmware {driver}\n".encode(),
                f"/usr/lib/firmware/nvidia/{driver}/gsp_tu10x.bin": f"stand-in GSP firmware {driver}\n".encode(),
            },
            scripts={
                "postinst": _fill("driver.postinst", driver=driver),
                "prerm": _fill("driver.prerm", driver=driver),
            },
            section="kernel",
            description="NVIDIA open kernel module, source for DKMS (stand-in)",
        )
        for name, soname in (("libnvidia-ml", "libnvidia-ml.so.1"), ("libcuda", "libcuda.so.1")):
            yield Package(
                name=f"{name}1",
                version=version,
                files=_library(name, soname, driver, f"NVIDIA user-mode driver {driver}\n"),
                links={f"{LIBRARIES}/{soname}": f"{name}.so.{driver}"},
                scripts=LDCONFIG,
                section="libs",
                description=f"NVIDIA {name} (stand-in)",
            )
        yield Package(
            name="nvidia-driver-cuda",
            version=version,
            files={
                "/usr/bin/nvidia-smi": _fill("nvidia-smi", version=driver, cuda=cuda),
                "/usr/lib/nvidia/smi.awk": smi_forms.fields(
                    _fill("smi.awk", dtd=smi_forms.dtd(driver)).decode(), driver
                ).encode(),
                "/usr/lib/nvidia/smi.form": smi_forms.form(_text("smi.form"), driver).encode(),
            },
            depends=tuple(f"{name} (= {version})" for name in ("libnvidia-ml1", "libcuda1", "nvidia-kernel-open-dkms")),
            section="utils",
            description="NVIDIA driver, the parts for computing (stand-in)",
        )
        yield _daemon("nvidia-fabricmanager", "nv-fabricmanager", driver, {})
        yield _daemon(
            "nvidia-imex",
            "nvidia-imex",
            driver,
            {
                "/usr/bin/nvidia-imex-ctl": _fill("nvidia-imex-ctl"),
                "/etc/nvidia-imex/nodes_config.cfg": b"",
                "/etc/nvidia-imex/config.cfg": b"SERVER_PORT=50000\nIMEX_CMD_PORT=50005\n",
            },
        )


def _daemon(package: str, program: str, driver: str, more: dict[str, bytes]) -> Package:
    return Package(
        name=package,
        version=f"{driver}-1",
        files={
            f"/usr/bin/{program}": _fill(program, version=driver),
            f"/usr/lib/lockstep-lab/services/{package}": f"exec /usr/bin/{program}\n".encode(),
            f"/etc/init.d/{package}": _fill("service.init", service=package),
            **more,
        },
        conffiles=tuple(path for path in more if path.startswith("/etc/")),
        scripts={"prerm": _fill("daemon.prerm", service=package)},
        section="admin",
        description=f"{package} (stand-in)",
    )


def _cuda() -> Iterator[Package]:
    for toolkit, runtime in CUDA.items():
        series = toolkit.rpartition(".")[0]
        dashed, root = series.replace(".", "-"), f"/usr/local/cuda-{series}"
        yield Package(
            name=f"cuda-cudart-{dashed}",
            version=f"{runtime}-1",
            files={
                f"{root}/targets/x86_64-linux/lib/libcudart.so.{runtime}": elf.shared_object("libcudart.so.13"),
                "/etc/ld.so.conf.d/000_cuda.conf": b"/usr/local/cuda/targets/x86_64-linux/lib\n",
            },
            links={f"{root}/targets/x86_64-linux/lib/libcudart.so.13": f"libcudart.so.{runtime}"},
            scripts=LDCONFIG,
            section="libs",
            description="CUDA runtime library (stand-in)",
        )
        yield Package(
            name=f"cuda-toolkit-{dashed}",
            version=f"{toolkit}-1",
            files={
                f"{root}/version.json": _fill("cuda-version.json", toolkit=toolkit, runtime=runtime),
                f"{root}/bin/nvcc": _fill("nvcc", series=series, runtime=runtime),
            },
            depends=(f"cuda-cudart-{dashed} (= {runtime}-1)",),
            scripts={
                "postinst": _fill("cuda.postinst", root=root, weight=series.replace(".", "")),
                "prerm": _fill("cuda.prerm", root=root),
                **LDCONFIG,
            },
            section="devel",
            description="CUDA toolkit (stand-in)",
        )


def _nccl() -> Iterator[Package]:
    for version in NCCL:
        number, plus, cuda = version.partition("+")
        yield Package(
            name="libnccl2",
            version=f"{number}-1{plus}{cuda}",
            files=_library("libnccl", "libnccl.so.2", number, f"NCCL version {version}\0"),
            links={f"{LIBRARIES}/libnccl.so.2": f"libnccl.so.{number}"},
            scripts=LDCONFIG,
            section="libs",
            description="NVIDIA collective communication library (stand-in)",
        )


def _container_toolkit() -> Iterator[Package]:
    for number in CONTAINER_TOOLKIT:
        version = f"{number}-1"
        contents: dict[str, tuple[dict[str, bytes], tuple[str, ...]]] = {
            "libnvidia-container1": (_library("libnvidia-container", "libnvidia-container.so.1", number), ()),
            "libnvidia-container-tools": (
                {"/usr/bin/nvidia-container-cli": _fill("nvidia-container-cli", version=number)},
                ("libnvidia-container1",),
            ),
            "nvidia-container-toolkit-base": (
                {
                    "/usr/bin/nvidia-ctk": _fill("nvidia-ctk", version=number, tool="NVIDIA Container Toolkit CLI"),
                    "/usr/bin/nvidia-container-runtime": _fill(
                        "nvidia-ctk", version=number, tool="NVIDIA Container Runtime"
                    ),
                },
                (),
            ),
            "nvidia-container-toolkit": (
                {"/etc/nvidia-container-runtime/config.toml": b'[nvidia-container-runtime]\nmode = "auto"\n'},
                ("nvidia-container-toolkit-base", "libnvidia-container-tools"),
            ),
        }
        for name, (files, depends) in contents.items():
            library = name == "libnvidia-container1"
            yield Package(
                name=name,
                version=version,
                files=files,
                links={f"{LIBRARIES}/libnvidia-container.so.1": f"libnvidia-container.so.{number}"} if library else {},
                depends=tuple(f"{other} (= {version})" for other in depends),
                scripts=LDCONFIG if library else {},
                conffiles=tuple(path for path in files if path.startswith("/etc/")),
                section="utils",
                description=f"NVIDIA container toolkit, {name} (stand-in)",
            )


def _kubernetes() -> Iterator[Package]:
    for number in KUBERNETES:
        yield Package(
            name="kubelet",
            version=f"{number}-1.1",
            files={
                "/usr/bin/kubelet": _fill("kubelet.front", version=number),
                "/usr/lib/kubelet/kubelet": _fill("kubelet", version=number),
                "/usr/lib/lockstep-lab/services/kubelet": _fill("kubelet.service"),
                "/etc/init.d/kubelet": _fill("service.init", service="kubelet"),
            },
            section="admin",
            description="Node agent of Kubernetes (stand-in)",
        )
        yield Package(
            name="kubeadm",
            version=f"{number}-1.1",
            files={"/usr/bin/kubeadm": _fill("kubeadm", version=number)},
            section="admin",
            description="Cluster bootstrap tool of Kubernetes (stand-in)",
        )


def all_packages() -> list[Package]:
    """Every stand-in package in every version, in a fixed order."""
    return [*_kernels(), *_drivers(), *_cuda(), *_nccl(), *_container_toolkit(), *_kubernetes()]


def build(folder: Path) -> list[Path]:
    """Write every package into ``folder`` (made when missing); returns the files, sorted."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for package in all_packages():
        path = folder / package.file_name
        path.write_bytes(package.content())
        written.append(path)
    return sorted(written)


def index(folder: Path) -> None:
    """Write ``Packages`` and ``Release`` of a flat repository over the packages that `build` put into ``folder``."""
    paragraphs = []
    for package in sorted(all_packages(), key=lambda package: package.file_name):
        content = (folder / package.file_name).read_bytes()
        control, _, description = package.control().partition("Description: ")
        paragraphs.append(
            f"{control}Filename: ./{package.file_name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\nDescription: {description}"
        )
    packages = "\n".join(paragraphs).encode()
    (folder / "Packages").write_bytes(packages)
    release = [
        "Origin: Lockstep lab",
        "Label: Lockstep lab",
        "Suite: lab",
        "Codename: lab",
        f"Date: {formatdate(debs.SOURCE_DATE_EPOCH, usegmt=True)}",
        "Architectures: amd64",
        "Description: stand-in packages of a lab",
        "SHA256:",
        f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages",
        "",
    ]
    (folder / "Release").write_text("\n".join(release))


def digest() -> str:
    """sha256 over every package's bytes: names what `build` would write."""
    total = hashlib.sha256()
    for package in all_packages():
        total.update(hashlib.sha256(package.content()).digest())
    return total.hexdigest()
