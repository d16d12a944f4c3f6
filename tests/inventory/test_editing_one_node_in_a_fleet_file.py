"""One node's entry is changed in the text; every other line, comment and quote stays."""

from __future__ import annotations

import difflib

import pytest

from inventory import editing
from lockstep.base import errors

FILE = """\
fleet: x   # a fleet
pools:
  - name: flow
    nodes:
      # the first rack
      gpu-[001-004]: {slot: "r1-u[01-04]", address: "127.90.0.[1-4]", domain: r1, state: new} # four
      'gpu-005': {slot: r1-u05, address: 10.0.0.5, state: repair, holder: o, generation: 4, serial: "12"}
  - name: block
    nodes:
      tray-[1-3]:   # a range in block style
        slot: "s[1-3]"   # slots
        address: 10.0.0.[1-3]

      # the end
      tray-9:
        address: 10.0.0.9
  - name: inline
    nodes: {"x-[1-2]": {address: "10.0.1.[1-2]"}, y: {}}
"""


def changed(name: str, **values: str | int | None) -> list[str]:
    """The lines that differ, as a diff writes them."""
    new = editing.update_node(FILE, name, values, place="fleet.yaml")
    lines = difflib.unified_diff(FILE.splitlines(), new.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def test_a_node_in_the_middle_of_a_range_gets_an_entry_of_its_own() -> None:
    assert changed("gpu-002", generation=2) == [
        '-      gpu-[001-004]: {slot: "r1-u[01-04]", address: "127.90.0.[1-4]", domain: r1, state: new} # four',
        "+      gpu-001: {slot: r1-u01, address: 127.90.0.1, domain: r1, state: new}",
        "+      gpu-002: {slot: r1-u02, address: 127.90.0.2, domain: r1, state: new, generation: 2}",
        '+      gpu-[003-004]: {slot: "r1-u[03-04]", address: "127.90.0.[3-4]", domain: r1, state: new} # four',
    ]


def test_values_of_an_entry_are_replaced_and_removed_in_place() -> None:
    assert changed("gpu-005", generation=5, state="in-service", holder=None, serial="00042") == [
        "-      'gpu-005': {slot: r1-u05, address: 10.0.0.5, state: repair, holder: o, generation: 4, serial: \"12\"}",
        "+      'gpu-005': {slot: r1-u05, address: 10.0.0.5, state: in-service, generation: 5, serial: \"00042\"}",
    ]


def test_block_style_stays_block_style() -> None:
    assert changed("tray-3", generation=2) == [
        "-      tray-[1-3]:   # a range in block style",
        '-        slot: "s[1-3]"   # slots',
        "-        address: 10.0.0.[1-3]",
        "+      tray-[1-2]:   # a range in block style",
        '+        slot: "s[1-2]"   # slots',
        '+        address: "10.0.0.[1-2]"',
        "+      tray-3:   # a range in block style",
        "+        slot: s3   # slots",
        "+        address: 10.0.0.3",
        "+        generation: 2",
    ]
    assert changed("tray-9", generation=2) == ["+        generation: 2"]


def test_a_mapping_on_one_line_stays_on_it() -> None:
    assert changed("x-2", generation=2) == [
        '-    nodes: {"x-[1-2]": {address: "10.0.1.[1-2]"}, y: {}}',
        "+    nodes: {x-1: {address: 10.0.1.1}, x-2: {address: 10.0.1.2, generation: 2}, y: {}}",
    ]
    assert changed("y", generation=2)[1] == '+    nodes: {"x-[1-2]": {address: "10.0.1.[1-2]"}, y: {generation: 2}}'


def test_nothing_to_say_changes_nothing() -> None:
    assert editing.update_node(FILE, "gpu-005", {}, place="fleet.yaml") == FILE


def test_an_unknown_node_is_an_error() -> None:
    with pytest.raises(errors.InputError, match="gpu-999"):
        editing.update_node(FILE, "gpu-999", {"generation": 2}, place="fleet.yaml")
