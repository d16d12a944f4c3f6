"""One lab of three nodes for the tests of a file, the first of them with a driver loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lab import testing

PACKAGES = (
    "linux-image-6.1.0-41-amd64",
    "nvidia-driver-cuda=580.105.08-1",
    "libnvidia-ml1=580.105.08-1",
    "libcuda1=580.105.08-1",
    "nvidia-kernel-open-dkms=580.105.08-1",
    "nvidia-imex=580.105.08-1",
    "libnccl2=2.28.9-1+cuda13.0",
)


def bring_up(lab: testing.FreshLab, node: str, *packages: str) -> None:
    """Install the packages by apt as a person would, and reboot."""
    words = " ".join(packages or PACKAGES)
    lab.run(
        node,
        "sh",
        "-ec",
        f"apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y {words} >/dev/null",
    )
    lab.power_off(node)
    lab.power_on(node)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, obstacle: Callable[[str], str | None]) -> Iterator[testing.FreshLab]:
    """Three running nodes; skips where none can run, for tests that are not marked `lab`."""
    if reason := obstacle("lab"):
        pytest.skip(f"lab: {reason}")
    with testing.fresh_lab(tmp_path_factory.mktemp("lab"), nodes=3) as made:
        yield made


@pytest.fixture(scope="module")
def gpu_node(lab: testing.FreshLab) -> str:
    """A node with driver 580.105.08 installed and loaded."""
    bring_up(lab, lab.nodes[0])
    return lab.nodes[0]


@pytest.fixture(scope="module")
def new_node(lab: testing.FreshLab) -> str:
    """A node with driver 610.57.04 loaded."""
    node = lab.nodes[1]
    names = ("nvidia-driver-cuda", "libnvidia-ml1", "libcuda1", "nvidia-kernel-open-dkms", "nvidia-fabricmanager")
    bring_up(lab, node, *(f"{name}=610.57.04-1" for name in names))
    return node
