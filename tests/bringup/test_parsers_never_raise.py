"""Arbitrary bytes from a node: every parser gives values or says Unreadable; none raises."""

from __future__ import annotations

import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from bringup import probe
from bringup.parsers import host, node, nvidia, packages, records
from bringup.parsers.records import Record
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


@given(RECORDS)
@settings(deadline=None)
def test_each_parser_takes_any_record(record: Record) -> None:
    files = host.sections(record)
    assert isinstance(nvidia.smi(record), (nvidia.Smi, Unreadable))
    assert isinstance(packages.parse(record), (packages.Packages, Unreadable))
    assert isinstance(host.holders(record), (tuple, Unreadable))
    assert isinstance(nvidia.tool_version(record, "version"), RAW)
    assert isinstance(nvidia.imex_domain(record), RAW)
    assert isinstance(nvidia.module_ondisk(record)[0], RAW)
    assert isinstance(nvidia.nccl(record)[0], RAW)
    assert isinstance(nvidia.module_running(files)[0], RAW)
    assert isinstance(host.kernel_running(record)[0], RAW)
    assert isinstance(host.kernel_next(files, record), RAW)
    assert isinstance(host.cuda_toolkit(files), RAW)
    assert host.admission(files) is None or isinstance(host.admission(files), dict)
    serial = host.serial(files, record)
    assert serial is None or serial.isprintable()


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
    for coordinate, fact in facts.facts.items():
        assert isinstance(fact.observation, (Version, Absent, Unreadable)), coordinate


@given(NOISE)
def test_a_stream_of_anything_is_taken_apart(stream: bytes) -> None:
    answer = records.read(stream)
    assert answer.records or answer.problem


@given(st.text(max_size=40))
def test_an_address_is_normal_or_none(text: str) -> None:
    found = nvidia.address(text)
    assert found is None or nvidia.address(found) == found


@given(st.text(max_size=30))
def test_any_text_has_a_sort_key(text: str) -> None:
    assert host.version_key(text) == host.version_key(text)
