"""Every operand of a rule about nodes is given by a source, what a pin means by the sources that the registry names."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path

import pytest

import inventory.load
import pinsets.load
from bringup import reading
from bringup.transport.fake import Fake
from lockstep.base import settings
from lockstep.base.names import ComponentName
from pinsets import components, model, rules
from pinsets.facts import Layer
from pinsets.rules import engine
from pinsets.rules.operands import Attribute, Place

from . import answers, readings

GIVEN = readings.given()
ALL = frozenset().union(*GIVEN.values())
NOT_READ: Mapping[str, str] = {
    "rocm@container": "of an image: a set or a case may name it; inside the job preflight compares ranks",
    "ofed@container": "of an image, as above",
    "cuda.compat@container": "of an image, as above; on the host the library on the loader's path is read",
    "nccl@running": "what a process has mapped: preflight reads it in the job, an audit looks at hosts",
    "rccl@running": "as nccl@running; the library that the loader finds is read in its place",
}
"""Operands that no source of an audit gives, and why the rule names them all the same."""
DERIVED = {"gpu.fabric", "gpu.vendor", "gpu.architecture"}
"""Attributes that `pinsets.rules.worlds` makes from others or from the SKU."""
EXEMPT: Mapping[str, str] = {
    "nvlink.domain@running": "not pinned; the fabric's attributes are held against the fleet file",
    "firmware.bundle@flashed": "the maker's name for a set; its parts are read",
    "firmware.switch.nvos@running": "nvfwupd does not list it, and we log in to no switch",
}
"""Layers that a pin means by itself and that nobody reads."""


def _rules() -> list[rules.Rule]:
    """Those that are about what was read; rules of sets and steps alone look at pins."""
    return [rule for rule in rules.load() if {"node", "domain", "pool"} & set(rule.levels)]


def _operands(rule: rules.Rule) -> list[Place | Attribute]:
    return [
        part for part in engine.parts((rule.applies, rule.demand, rule.group)) if isinstance(part, (Place, Attribute))
    ]


def test_every_layer_that_a_rule_names_is_given_by_a_source() -> None:
    lacking = {
        f"{part.component}@{layer}": rule.id
        for rule in _rules()
        for part in _operands(rule)
        if isinstance(part, Place)
        for layer in part.layers
        if f"{part.component}@{layer}" not in ALL
    }
    assert set(lacking) == set(NOT_READ), lacking


def test_every_attribute_that_a_rule_names_is_given_by_a_source() -> None:
    known = readings.attributes()
    lacking = {
        part.pattern: rule.id
        for rule in _rules()
        for part in _operands(rule)
        if isinstance(part, Attribute)
        and part.pattern not in DERIVED
        and not any(fnmatch.fnmatchcase(key, part.pattern) for key in known)
    }
    assert lacking == {}


def test_every_rule_can_be_decided_by_something_that_is_read() -> None:
    """Alternatives aside: at least one layer of each operand, unless the operand is one of those that nobody reads."""
    odd = [
        (rule.id, str(part))
        for rule in _rules()
        for part in _operands(rule)
        if isinstance(part, Place)
        and not any(f"{part.component}@{layer}" in ALL for layer in part.layers)
        and not all(f"{part.component}@{layer}" in NOT_READ for layer in part.layers)
    ]
    assert odd == []


def test_what_a_pin_means_by_itself_is_read_by_the_sources_that_the_registry_names() -> None:
    lacking = {
        f"{name}@{layer}": entry.readers
        for name, entry in components.load().items()
        for layer in entry.layers
        if not any(f"{name}@{layer}" in GIVEN[reader] for reader in entry.readers)
    }
    assert set(lacking) == set(EXEMPT), lacking


def test_the_registry_names_every_source_that_reads_a_component_and_no_other() -> None:
    odd = {}
    for name, entry in components.load().items():
        places = {f"{name}@{layer}" for layer in (*entry.layers, *entry.further)}
        reading = {word for word, found in GIVEN.items() if places & found}
        # Of a node by SSH the list of slots that answer is an attribute, made into facts where it is compared.
        reading |= {"ssh"} if name == "gpu" else set()
        if reading != set(entry.readers) and f"{name}@{entry.layers[0]}" not in EXEMPT:
            odd[name] = (sorted(reading), entry.readers)
    assert odd == {}


def test_what_only_the_heavy_tools_tell_is_asked_where_it_is_pinned() -> None:
    assert readings.only_deep() == reading.HEAVY


@pytest.mark.parametrize("pinned", [None, *sorted(reading.HEAVY)])
def test_a_pool_that_pins_a_heavy_thing_is_read_with_the_heavy_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: str | None
) -> None:
    given = settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")
    fleet = inventory.load.fleet(str(answers.fleet_file(tmp_path, {"a": ""})), given)
    real = pinsets.load.pinset

    def with_one_more(name: str) -> object:
        found = real(name)
        more = {ComponentName(pinned): model.Pin(version="0")} if pinned else {}
        return found.model_copy(update={"pins": {**found.pins, **more}})

    monkeypatch.setattr(pinsets.load, "pinset", with_one_more)
    fake = Fake({"a": answers.answer("1")})
    reading.read_nodes(fleet, ["a"], transport=fake)
    ((_, script, _),) = fake.calls
    assert ("run mlxconfig" in script) is (pinned is not None)


def test_no_source_gives_a_layer_that_the_registry_does_not_have() -> None:
    known = {
        f"{name}@{layer}" for name, entry in components.load().items() for layer in (*entry.layers, *entry.further)
    }
    known |= {f"{name}@{Layer.PACKAGE}" for name in components.load()}
    assert known >= ALL
