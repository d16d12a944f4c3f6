"""Against a word-for-word rendering of the formula, one node and one kind at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import topology
from placement.fragmentation import Fragmentation
from placement.policies import fgd
from placement.state import State
from placement.tasks import Task, Workload, typical

FLEET = topology.build(
    [topology.NodeSpec("a", 64000, 1, 4, "T4"), topology.NodeSpec("b", 96000, 1, 8, "G2")],
)


def _tasks() -> st.SearchStrategy[Task]:
    models = st.sampled_from([frozenset(), frozenset({"T4"}), frozenset({"G2"}), frozenset({"T4", "G2"})])
    cpu = st.integers(0, 100).map(lambda cores: cores * 1000)
    return st.one_of(
        st.builds(Task, cpu, st.just(0), st.just(1), st.integers(1, 1000), models),
        st.builds(Task, cpu, st.just(0), st.sampled_from([2, 4, 8]), st.just(1000), models),
        st.builds(Task, cpu, st.just(0), st.just(0), st.just(0)),
    )


def _by_the_book(gpu: list[int], cpu: int, model: str, workload: Workload) -> float:
    expected = 0.0
    for task, probability in workload.frequencies.items():
        usable = [free for free in gpu if task.gpus and free >= task.share]
        allowed = not task.models or model in task.models
        if task.gpus and allowed and cpu >= task.cpu and len(usable) >= task.gpus:
            expected += probability * sum(free for free in gpu if free < task.share)
        else:
            expected += probability * sum(gpu)
    return expected


@settings(max_examples=100, deadline=None)
@given(
    counts=st.dictionaries(_tasks(), st.integers(1, 50), min_size=1, max_size=12),
    gpu=st.lists(st.integers(0, 1000), min_size=8, max_size=8),
    cpu=st.integers(0, 96000),
    node=st.sampled_from([0, 1]),
)
def test_any_state_and_any_workload(counts: dict[Task, int], gpu: list[int], cpu: int, node: int) -> None:
    workload = Workload.counted(counts)
    found = Fragmentation(FLEET, workload).of(np.array([gpu]), np.array([cpu]), np.array([node]))
    book = _by_the_book(gpu, cpu, FLEET.models[node], typical(workload))
    np.testing.assert_allclose(found[0], book, rtol=1e-9, atol=1e-9)


def test_typical_kinds_cover_95_percent_and_are_renormalised() -> None:
    tasks = [Task(1000 * cores, 0, 1, 1000) for cores in range(1, 5)]
    workload = Workload.counted(dict(zip(tasks, [50, 40, 6, 4], strict=True)))
    assert list(typical(workload).frequencies) == tasks[:3]
    assert abs(sum(typical(workload).frequencies.values()) - 1) < 1e-12


def test_a_share_goes_where_it_spoils_least_and_ties_go_to_the_node_order() -> None:
    fleet = topology.build([topology.NodeSpec(name, 64000, 1000, 2, "T4") for name in "abc"])
    workload = Workload.counted({Task(1000, 1, 1, 500): 1, Task(1000, 1, 1, 1000): 1})
    state = State(fleet)
    policy = fgd.Fgd(state, workload, np.array([2, 0, 1]))
    first = policy.choose(Task(1000, 1, 1, 500))
    assert first is not None
    assert (first.node, first.gpus) == (1, (0,))
    state.take(first.node, first.gpus, 500, 1000, 1)
    second = policy.choose(Task(1000, 1, 1, 500))
    assert second is not None
    assert (second.node, second.gpus) == (1, (0,))


def test_the_cache_scores_changed_nodes_as_if_it_were_new() -> None:
    generator = np.random.default_rng(1)
    fleet = topology.build([topology.NodeSpec(f"n{i}", 64000, 64000, 4, "T4") for i in range(12)])
    kinds = [Task(2000, 1000, 1, 300), Task(4000, 2000, 1, 1000), Task(9000, 100, 2, 1000), Task(5000, 1, 0, 0)]
    workload = Workload.counted({kind: 4 - i for i, kind in enumerate(kinds)})
    rank = generator.permutation(12)
    state = State(fleet)
    kept = fgd.Fgd(state, workload, rank)
    for number in generator.integers(4, size=80):
        task = kinds[number]
        choice = kept.choose(task)
        assert choice == fgd.Fgd(state, workload, rank).choose(task)
        if choice is not None:
            state.take(choice.node, choice.gpus, task.share, task.cpu, task.memory)


def test_work_that_spoils_nothing_scores_fifty_on_every_node() -> None:
    generator = np.random.default_rng(2)
    fleet = topology.build([topology.NodeSpec(f"n{i}", 96000, 64000, 8, "T4") for i in range(200)])
    shares = generator.integers(1, 1000, 20).tolist()
    workload = Workload.counted({Task(1000, 1, 1, share): 1 + share for share in shares})
    state = State(fleet)
    state.gpu[:] = generator.integers(0, 1001, state.gpu.shape)
    policy = fgd.Fgd(state, workload, np.arange(200))
    tiny = Task(1, 1, 0, 0)  # no kind stops fitting for want of one thousandth of a core
    for size in (1, 3, 50, 200):
        scores, _ = policy._score(tiny, np.arange(size))
        assert set(scores.tolist()) == {50}
