"""Arbitrary bytes from a node: every parser gives values or says Unreadable; none raises."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bringup import probe
from bringup.parsers import (
    amd,
    collectives,
    communication,
    containers,
    cuda,
    fabric,
    host,
    loader,
    machine,
    modules,
    nic_tools,
    nics,
    node,
    nvfwupd,
    nvidia,
    packages,
    records,
    smi,
    smi_text,
    texts,
)
from bringup.parsers.records import Record
from lockstep.base import documents, issues
from lockstep.base.names import NodeName
from pinsets import components
from pinsets.facts import Absent, NodeFacts, Unreadable, Version

RAW = (str, Absent, Unreadable)

_FRAGMENTS = st.sampled_from(
    [
        b"@/etc/os-release\n ID=debian\n",
        b"NVRM version: Kernel Module  ",
        b"<nvidia_smi_log>",
        b"<gpu id='0000:01:00.0'>",
        b"</gpu></nvidia_smi_log>",
        b"#dpkg\n",
        b"a\t1\tii \n",
        b"end",
        b"=1 kubelet /x",
        b"\x00",
        b"\xff\xfe",
        b"{",
        b"[" * 3000,
        b"linux-image-1.2\t1-1\thi \n",
        b"NCCL version 2.28.3+cuda13.0\n",
        b"saved_entry=",
        b"<!ENTITY a 'b'>",
        b"GPU is lost",
        b"filename: /lib/modules/6.8/updates/dkms/nvidia.ko\nversion: 1.2\n",
        b"@paths\n libnccl.so.2 /a/libnccl.so.2\n@real\n /a/libnccl.so.2 /a/x\n@strings\n/a/x:NCCL version 2.1.1\n",
        b"/sys/class/infiniband/mlx5_0/fw_ver:28.41.1000\n/sys/class/infiniband/mlx5_0/device/uevent:PCI_SLOT_NAME=",
        b"=====NVSMI LOG=====\n\nGPU 00000000:0C:00.0\n    Product Name : x\n    Fabric\n        State : y\n",
        b"<Devices><Device pciName='0000:b4:00.0'><Versions><FW current='--'/></Versions></Device></Devices>",
        b"AP Name   Sys Version  Pkg Version  Up-To-Date\nASIC  1  2  No\nx\n",
        b'[{"gpu": 0, "fw_list": [{"fw_id": "A", "fw_version": 3}, 5, null]}, 7]',
        b'{"gpu_data": [{"gpu": "x", "bus": 1}], "info": {"pci/0000:01:00.0": {"versions": 3}}}',
        b'{"nic": [1, {"eth_bdf": 3}], "nodes": 5}',
        b"@0000:1a:00.0\n",
        b"9" * 5000,
        b"Version: 0.1.0\nRuntimeVersion: v\n",
        b"GPU 0: x\n     MSE: 1:2:3\n",
    ]
)
NOISE = st.lists(st.one_of(_FRAGMENTS, st.binary(max_size=200)), max_size=8).map(b"".join)
RECORDS = st.builds(
    Record,
    id=st.sampled_from([command.id for command in probe.COMMANDS]),
    rc=st.integers(-3, 255),
    ms=st.integers(0, 30_000),
    out=NOISE,
    err=NOISE,
)


OF_RECORDS: tuple[Callable[[Record], object], ...] = (
    *(smi.smi, smi_text.query, smi_text.versions, smi_text.listed, smi_text.table, smi_text.topology),
    *(
        smi_text.nvlink_firmware,
        smi_text.nvlink_links,
        smi_text.conf_compute,
        packages.parse,
        host.holders,
        host.kernel_running,
    ),
    *(modules.modinfo, modules.dkms, loader.read, collectives.nccl_record, fabric.imex_domain, fabric.dcgm),
    *(fabric.imex_domain_state, fabric.nvlsm, cuda.nvcc, containers.container_cli, containers.containerd),
    *(containers.cri, containers.docker, containers.cdi_files, nics.nics, nics.devlink, nics.devices),
    *(nic_tools.per_device, nic_tools.mlxfwmanager, nic_tools.ofed, nic_tools.mft, nic_tools.nicctl),
    *(communication.ucx, communication.libfabric, nvfwupd.show_version, amd.version, amd.firmware, amd.devices),
    *(amd.cards, amd.rocm_smi, machine.disks, machine.acs, texts.tool_version, texts.json_of),
)
OF_TEXT: tuple[Callable[[str], object], ...] = (
    *(collectives.integer, collectives.nccl_string, collectives.rccl_log, loader.cache, fabric.imex_log),
    *(fabric.mismatch, fabric.imex_nodes, cuda.cudnn_header, cuda.driver_integer, containers.cdi),
    *(containers.runtime_mode, nics.ethtool, nic_tools.mstflint, nic_tools.mlxconfig, machine.dmi_table),
    *(machine.api_mismatch, machine.kernel_arguments, texts.version_key, texts.known, smi.address),
)
OF_FILES: tuple[Callable[[host.Sections], object], ...] = (
    *(nvidia.module_running, nvidia.parameters, host.os_release, host.boot_id, host.uid, host.admission),
    *(machine.cpu, machine.iommu, machine.taint_letters, machine.secure_boot, machine.reboot_required),
    *(machine.page_size, machine.dgx_release, machine.environment, cuda.toolkit, cuda.toolkits),
    *(communication.hpcx, communication.efa_installer, communication.efa_packages, modules.loaded),
    *(packages.version_locks,),
)


@given(RECORDS)
@settings(deadline=None)
def test_each_parser_takes_any_record(record: Record) -> None:
    text = record.text
    files = host.sections(record)
    for of_record in OF_RECORDS:
        of_record(record)
    for of_text in OF_TEXT:
        of_text(text)
    for of_files in OF_FILES:
        of_files(files)
    assert isinstance(texts.tool_version(record, "version"), RAW)
    assert isinstance(fabric.imex_domain(record), RAW)
    assert isinstance(host.kernel_next(files, record), RAW)
    serial = host.serial(files, record)
    assert serial is None or serial.isprintable()


@functools.cache
def _outputs() -> tuple[bytes, ...]:
    """What every case file says that a source printed."""
    found = []
    for path in sorted((Path(__file__).parents[1] / "data" / "facts").rglob("*.yaml")):
        document = documents.load(path, issues.Report())
        if document is not None and document.data.get("out"):
            found.append(str(document.data["out"]).encode())
    return tuple(found)


@st.composite
def _damaged(draw: st.DrawFn) -> Record:
    """A real form with a piece cut out, noise put in, or the head of another one in front."""
    text = draw(st.sampled_from(_outputs()))
    begin = draw(st.integers(0, len(text)))
    end = draw(st.integers(begin, len(text)))
    noise = draw(st.one_of(st.just(b""), st.binary(max_size=20), _FRAGMENTS, st.sampled_from(_outputs())))
    return Record("x", draw(st.sampled_from([0, 1, 126, 127])), 1, text[:begin] + noise + text[end:], noise)


@given(_damaged())
@settings(deadline=None, max_examples=150)
def test_each_parser_takes_a_damaged_answer_of_any_source(record: Record) -> None:
    for of_record in OF_RECORDS:
        of_record(record)
    for of_text in OF_TEXT:
        of_text(record.text)


@given(NOISE)
@settings(deadline=None)
def test_each_parser_takes_any_file(noise: bytes) -> None:
    text = noise.decode("utf-8", "replace")
    names = [
        "/proc/driver/nvidia/params",
        "/sys/module/nvidia/version",
        "cpu",
        "numa",
        "page",
        "env /etc/profile.d/x.sh",
    ]
    names += ["/opt/hpcx/VERSION", "/opt/amazon/efa_installed_packages", "/etc/dgx-release", "/proc/sys/kernel/tainted"]
    names += [
        "/etc/zypp/locks",
        "/usr/local/cuda/version.json",
        "toolkits",
        "modules",
        "uid",
        "/proc/driver/nvidia/version",
    ]
    files = dict.fromkeys(names, text)
    for of_files in OF_FILES:
        of_files(files)


@given(st.lists(RECORDS, max_size=16, unique_by=lambda record: record.id), NOISE)
@settings(deadline=None)
def test_a_whole_answer_of_anything_becomes_facts(answers: list[Record], noise: bytes) -> None:
    lines = [
        json.dumps(
            {
                "id": record.id,
                "rc": record.rc,
                "ms": record.ms,
                "out": base64.b64encode(record.out).decode(),
                "err": base64.b64encode(record.err).decode(),
            }
        ).encode()
        for record in answers
    ]
    stream = noise + b"\n" + b"\n".join(lines) + b'\n{"done": 1}\n'
    facts = node.facts(NodeName("n"), records.read(stream), components.load(), sku=None, observed_at=1.0)
    assert isinstance(facts, NodeFacts)
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in facts.attributes.items())
    for coordinate, fact in facts.facts.items():
        assert isinstance(fact.observation, (Version, Absent, Unreadable)), coordinate


@given(NOISE)
def test_a_stream_of_anything_is_taken_apart(stream: bytes) -> None:
    answer = records.read(stream)
    assert answer.records or answer.problem


@given(st.text(max_size=40))
def test_an_address_is_normal_or_none(text: str) -> None:
    found = smi.address(text)
    assert found is None or smi.address(found) == found


@given(st.text(max_size=30))
def test_any_text_has_a_sort_key(text: str) -> None:
    assert texts.version_key(text) == texts.version_key(text)
