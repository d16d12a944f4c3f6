"""Every rule holds in its passing cases, is broken in its failing ones, and undecided where nothing can be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inventory import model as inventory_model
from lockstep.base import documents, issues
from lockstep.base.names import NodeName
from pinsets import normalisers, rules
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Observation, Unreadable, Version
from pinsets.findings import Severity
from pinsets.rules import engine, files, ordering, worlds
from pinsets.rules.conditions import Table, Within
from pinsets.rules.operands import Place

FOLDER = Path(__file__).parents[1] / "data" / "rules"
RULES = {rule.id: rule for rule in rules.load()}
PATHS = sorted(FOLDER.glob("*/*.yaml"))


def _observation(coordinate: Coordinate, text: str) -> Observation:
    if text == "absent":
        return ABSENT
    if text == "unreadable":
        return Unreadable("no answer in 8 s")
    return Version(normalisers.normalise(coordinate.component, text), text)


def _node(name: str, data: dict[str, Any], *, blind: bool = False) -> NodeFacts:
    """A node of a case; ``blind``: with nothing readable in the same places."""
    facts = {}
    for text, value in data.get("facts", {}).items():
        coordinate = Coordinate.parse(text)
        seen = _observation(coordinate, "unreadable" if blind else str(value))
        facts[coordinate] = Fact(coordinate, seen, "case")
    attributes = {} if blind else {key: str(value) for key, value in data.get("attributes", {}).items()}
    return NodeFacts(NodeName(name), 1.0, facts, attributes=attributes)


@dataclass(frozen=True)
class Case:
    """One file."""

    rule: rules.Rule
    data: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> Case:
        report = issues.Report()
        document = documents.load(path, report)
        report.raise_if_errors("case")
        assert document is not None
        return cls(RULES[path.parent.name], document.data)

    @property
    def context(self) -> rules.Context:
        product = self.data.get("product")
        sku = None
        if product is not None:
            sku = inventory_model.SkuFile(sku="case", accelerator=product, gpus={"0000:01:00.0": "gpu0"})
        return rules.Context(sku=sku, level=self.data.get("level", "node"))

    def nodes(self, *, blind: bool = False) -> list[NodeFacts]:
        return [_node(name, data, blind=blind) for name, data in self.data["nodes"].items()]

    def outcome(self, *, blind: bool = False) -> rules.Outcome:
        """What the one rule says."""
        only, context = [self.rule], self.context
        if "before" in self.data:
            return engine.of_change(self.data["before"], self.data["after"], context, rules=only)
        if "pins" in self.data:
            return engine.of_set({} if blind else self.data["pins"], context, rules=only)
        nodes = self.nodes(blind=blind)
        if "level" in self.data:
            return engine.of_group(nodes, context, rules=only)
        return engine.of_node(nodes[0], context, rules=only)

    def applies(self) -> bool:
        """Whether the rule's condition of application holds on a node of the case, or in its set."""
        if self.rule.applies is None:
            return True
        if "pins" in self.data:
            return self.rule.applies.judge(worlds.SetWorld(self.data["pins"], self.context)).truth is True
        found = [
            world for facts in self.nodes() for world in engine.worlds(self.rule, worlds.NodeWorld(facts, self.context))
        ]
        return any(self.rule.applies.judge(world).truth is True for world in found)


@pytest.mark.parametrize("path", PATHS, ids=[f"{path.parent.name}: {path.stem}" for path in PATHS])
def test_a_rule_says_of_its_case_what_the_case_expects(path: Path) -> None:
    case = Case.load(path)
    outcome = case.outcome()
    expected = case.data["expect"]
    said = "breaks" if outcome.breaches else "undecided" if outcome.undecided else "holds"
    if said == "holds" and not case.applies():
        said = "does not apply"
    assert said == expected, outcome
    for breach in outcome.breaches:
        assert breach.severity.value == case.data.get("severity", breach.severity.value)
        assert breach.expected
        assert breach.observed
        assert breach.use == case.rule.use
        if breach.doubtful:
            assert breach.severity in (Severity.WARN, Severity.INFO)
        if case.data.get("doubtful"):
            assert breach.doubtful
    if "odd" in case.data:
        named = {str(node) for breach in outcome.breaches for node in breach.nodes}
        assert named == set(case.data["odd"])


@pytest.mark.parametrize(
    "path",
    [path for path in PATHS if Case.load(path).data["expect"] in ("holds", "breaks")],
    ids=lambda path: f"{path.parent.name}: {path.stem}",
)
def test_what_cannot_be_read_leaves_a_rule_undecided(path: Path) -> None:
    case = Case.load(path)
    if "before" in case.data:
        pytest.skip("a step between two sets reads nothing")
    context = case.context
    outcome = Case(case.rule, {key: value for key, value in case.data.items() if key != "product"}).outcome(blind=True)
    assert outcome.breaches == (), context
    assert [one.rule.id for one in outcome.undecided] == [case.rule.id]
    assert outcome.undecided[0].missing


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_has_a_passing_and_a_failing_case(name: str) -> None:
    expected = {Case.load(path).data["expect"] for path in (FOLDER / name).glob("*.yaml")}
    assert {"holds", "breaks"} <= expected


def test_every_rule_of_the_catalogue_is_there() -> None:
    families = {rule.id.partition("-")[0] for rule in rules.load()}
    wanted = [f"K{n}" for n in range(1, 6)] + [f"F{n}" for n in range(1, 6)] + [f"N{n}" for n in range(1, 8)]
    wanted += ["C1", "D1", "T1", "T2", "G1", "G2", "O1", "O2", "X1", "X2", "CUDA"] + [f"A{n}" for n in range(1, 6)]
    assert set(wanted) <= families


def _published() -> dict[str, dict[str, Any]]:
    report = issues.Report()
    document = documents.load(FOLDER.parent / "published_sets.yaml", report)
    report.raise_if_errors("published sets")
    assert document is not None
    found: dict[str, dict[str, Any]] = document.data["sets"]
    return found


PUBLISHED = _published()


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_set_breaks_only_what_its_publisher_got_wrong(name: str) -> None:
    given = PUBLISHED[name]
    product = given["product"]
    sku = inventory_model.SkuFile(
        sku="case",
        accelerator=product,
        vendor="amd" if product.startswith("AMD") else "nvidia",
        nvlink=given.get("nvlink", "none"),
        gpus={"0000:01:00.0": "gpu0"},
    )
    outcome = rules.of_set({key: str(value) for key, value in given["pins"].items()}, rules.Context(sku=sku))
    broken = [breach.rule.id for breach in outcome.breaches if breach.severity is not Severity.INFO]
    assert broken == given.get("breaks", []), outcome.breaches


def test_rules_of_another_maker_are_left_aside_and_not_undecided() -> None:
    node = NodeFacts(NodeName("a"), 1.0, attributes={"gpu.product": "AMD Instinct MI300X"})
    left = {one.rule.vendor for one in rules.of_node(node, rules.Context()).undecided}
    assert "nvidia" not in left
    assert "amd" in left


def test_every_folder_of_cases_is_of_a_rule() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_says_what_is_wrong_who_says_so_and_what_to_do(name: str) -> None:
    rule = RULES[name]
    assert rule.title.endswith(".")
    assert min(len(rule.source), len(rule.message), len(rule.remedy)) > 8


def test_bounds_are_written_as_they_are_compared() -> None:
    """A bound in another form than its component's normal form would never be met."""
    odd = []
    for rule in rules.load():
        for part in engine.parts((rule.applies, rule.demand, rule.group)):
            pairs: list[tuple[Place, tuple[ordering.Range, ...]]] = []
            if isinstance(part, Within) and isinstance(part.of, Place):
                pairs.append((part.of, (*part.ranges, *part.excluded)))
            if isinstance(part, Table):
                for line in part.lines:
                    cells = [(part.look, line.then), *zip(part.keys, line.when, strict=True)]
                    pairs += [(of, cell) for of, cell in cells if isinstance(of, Place) and isinstance(cell, tuple)]
            for of, ranges in pairs:
                for one in ranges:
                    odd += [
                        (rule.id, bound)
                        for relation, bound in one.bounds
                        if relation == "=" and normalisers.normalise(of.component, bound) != bound
                    ]
    assert odd == []


def test_attributes_that_no_rule_reads_do_not_split_groups() -> None:
    assert rules.reads("gpu.gpu3.product")
    assert rules.reads("driver.for.6.8.0-60-generic")
    assert rules.reads("nic.nic0.psid")
    assert not rules.reads("gpu.gpu3.uuid")
    assert not rules.reads("nic.nic0.pci")


def test_an_unreachable_node_breaks_nothing() -> None:
    facts = NodeFacts(NodeName("a"), 1.0, unreachable="no answer")
    assert rules.of_node(facts, rules.Context()) == rules.Outcome()
    assert rules.of_group([facts, facts], rules.Context(level="pool")).breaches == ()


def test_what_nobody_looked_for_is_told_from_what_could_not_be_read() -> None:
    asked = _node("a", {"facts": {"driver@ondisk": "unreadable", "driver@running": "580.1"}})
    (tried,) = engine.of_node(asked, rules.Context(), rules=[RULES["K1"]]).undecided
    (never,) = engine.of_node(_node("a", {}), rules.Context(), rules=[RULES["K1"]]).undecided
    assert (tried.tried, never.tried) == (True, False)
    assert tried.missing == ("driver@ondisk: no answer in 8 s",)


@pytest.mark.parametrize(
    ("rule", "level", "facts"),
    [
        ("F4", "domain", {"firmware.bmc@running": "25.99-1"}),
        ("F4", "domain", {}),
        ("A2", "node", {"rocm@package": "99.1.0", "rccl@package": "2.30.4"}),
        ("D1-cuda", "node", {"driver@running": "999.10"}),
    ],
)
def test_what_is_newer_than_our_tables_is_not_called_unreadable(rule: str, level: str, facts: dict[str, str]) -> None:
    nodes = [_node(name, {"facts": facts, "attributes": {"dcgm.cuda": "13"}}) for name in "ab"]
    if level == "node":
        (open_,) = engine.of_node(nodes[0], rules.Context(), rules=[RULES[rule]]).undecided
    else:
        (open_,) = engine.of_group(nodes, rules.Context(level="domain"), rules=[RULES[rule]]).undecided
    assert open_.missing
    assert not open_.tried


def test_equal_breaches_of_several_instances_are_one() -> None:
    facts = {
        coordinate: Fact(coordinate, Version("28.98.9122", "28.98.9122"), "case")
        for slot in range(8)
        for coordinate in [Coordinate.parse(f"firmware.nic[nic{slot}]@running")]
    }
    outcome = engine.of_node(NodeFacts(NodeName("a"), 1.0, facts), rules.Context(), rules=[RULES["O1-internal"]])
    (breach,) = outcome.breaches
    assert [coordinate.instance for coordinate in breach.coordinates] == [f"nic{slot}" for slot in range(8)]


BAD = {
    "an unknown word": (
        "demand: {eqal: [driver@running, driver@ondisk]}",
        "unknown condition `eqal` (did you mean `equal`?)",
    ),
    "an unknown component": ("demand: {present: drivr@running}", "unknown component `drivr` (did you mean `driver`?)"),
    "a layer that a component does not have": ("demand: {present: cdi@running}", "`cdi` has no layer `running`"),
    "an open range": ('demand: {within: {of: driver@running, ranges: "~580"}}', "'~580' is no range"),
    "a table line with too few cells": (
        'demand: {table: {keys: [cuda@ondisk, driver@running], look: os@running, lines: [{when: ["13"], then: "2"}]}}',
        "2 cells are needed",
    ),
    "an instance that is not named": ('demand: {present: "firmware.gpu@running"}', "one per instance: write `[each]`"),
    "two demands": ("demand: {present: cdi@ondisk}\n    group: {same: {of: [cdi@ondisk]}}", "it needs one of demand"),
    "an expression": ("demand: {python: '1 == 1'}", "unknown condition `python`"),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_a_damaged_rule_is_refused_with_its_line(what: str, tmp_path: Path) -> None:
    text, message = BAD[what]
    path = tmp_path / "x.yaml"
    path.write_text(
        "rules:\n  - id: Z1\n    title: A rule.\n    severity: warn\n    source: somebody\n    message: wrong\n"
        f"    remedy: mend it\n    {text}\n"
    )
    report = issues.Report()
    assert files.read([path], report) == ()
    (issue,) = report.errors
    assert message in issue.text()
    assert issue.line is not None


FORMS = {
    "a range with a hole": (
        'demand: {within: {of: driver@running, ranges: ">=570 <580", except: ["570.124.06", 575.51.*]}}',
        {
            "570.172.08": "holds",
            "570.124.06": "breaks",
            "575.51.03": "breaks",
            "580.65.06": "breaks",
            "odd": "undecided",
        },
    ),
    "what must not be": (
        'demand: {outside: {of: driver@running, ranges: ["565.*", "<550"]}}',
        {"570.172.08": "holds", "565.57.01": "breaks", "535.129.03": "breaks", "absent": "holds"},
    ),
    "present and in a range": (
        'demand: {is: {of: driver@running, ranges: ">=570"}}',
        {"570.172.08": "holds", "absent": "breaks", "unreadable": "undecided"},
    ),
    "one of two": (
        'demand: {any: [{absent: driver@running}, {one-of: {of: {number: 1, of: driver@running}, values: ["580"]}}]}',
        {"580.65.06": "holds", "absent": "holds", "570.172.08": "breaks", "unreadable": "undecided"},
    ),
    "what nobody proves": (
        "applies: {not-known: {present: cdi@ondisk}}\n    demand: {present: driver@running}",
        {"580.65.06": "holds", "absent": "breaks"},
    ),
}


@pytest.mark.parametrize("what", sorted(FORMS))
def test_a_form_of_condition_means_what_it_says(what: str, tmp_path: Path) -> None:
    text, expected = FORMS[what]
    path = tmp_path / "x.yaml"
    path.write_text(
        "rules:\n  - id: Z1\n    title: A rule.\n    severity: warn\n    source: somebody\n    message: wrong\n"
        f"    remedy: mend it\n    {text}\n"
    )
    report = issues.Report()
    found = files.read([path], report)
    assert [issue.text() for issue in report.ordered()] == []
    for value, wanted in expected.items():
        outcome = engine.of_node(_node("a", {"facts": {"driver@running": value}}), rules.Context(), rules=found)
        said = "breaks" if outcome.breaches else "undecided" if outcome.undecided else "holds"
        assert said == wanted, value
