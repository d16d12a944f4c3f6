"""With a real control plane: join, admit, fence, vacate, rejoin. One lab, in this order."""

from __future__ import annotations

from collections.abc import Iterator

import lightkube
import pytest
from lightkube.codecs import from_dict
from lightkube.config.kubeconfig import KubeConfig

from bringup.cluster import Cluster
from bringup.cluster_views import NodeView
from lab import faults, testing
from manifests import render
from tests.bringup import acting, jobs

pytestmark = [pytest.mark.lab, pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.FreshLab]:
    pool = testing.LabPool(nodes=3, spares=1, wait="1s", budget="1")
    with testing.fresh_lab(tmp_path_factory.mktemp("lab"), pools=[pool], control_plane=True) as made:
        yield made


@pytest.fixture(scope="module")
def client(lab: testing.FreshLab) -> lightkube.Client:
    """The administrator's client; our cluster-wide objects are applied."""
    found = lightkube.Client(KubeConfig.from_file(lab.kubeconfig).get(), trust_env=False)
    for objects in render.components(lab.fleet()).values():
        for one in objects:
            found.apply(from_dict(one), field_manager="test", force=True)
    return found


@pytest.fixture(scope="module")
def cluster(lab: testing.FreshLab) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(lab.kubeconfig) as found:
        yield found


def view(cluster: Cluster, node: str) -> NodeView:
    found = cluster.node(node)
    assert found is not None, f"{node} is no Node"
    return found


@pytest.mark.usefixtures("client")
def test_new_nodes_join_and_are_admitted_and_a_spare_is_not(lab: testing.FreshLab, cluster: Cluster) -> None:
    done = acting.bringup(lab)
    assert done.returncode == 0, acting.said(done)
    *joined, spare = lab.nodes
    for node in joined:
        file = acting.admission(lab, node)
        assert file is not None
        seen = view(cluster, node)
        assert seen.admitted
        assert seen.ready
        assert seen.lock_digest == file["lock"]
        assert seen.boot_id == lab.boot_id(node)
    assert cluster.node(spare) is None


def test_the_nodes_credentials_are_on_the_node_and_nowhere_else(lab: testing.FreshLab) -> None:
    node = lab.nodes[0]
    token = (lab.state / "node-tokens" / node).read_text().strip()
    assert token in lab.run(node, "cat", "/var/lib/kubelet/kubeconfig").stdout
    assert lab.run(node, "stat", "-c", "%a %U", "/var/lib/kubelet/kubeconfig").stdout.split() == ["600", "root"]
    for name in ("journal.db", "journal.db-wal"):
        file = lab.state / name
        assert not file.exists() or token.encode() not in file.read_bytes()
    assert acting.left_in_memory() == []


def test_a_second_run_disturbs_no_node_with_a_running_claim(
    lab: testing.FreshLab, cluster: Cluster, client: lightkube.Client
) -> None:
    node = lab.nodes[0]
    jobs.create(client, "train", node)
    jobs.until(lambda: jobs.bound(client, "train"), "an admitted node takes a pod with a claim of one GPU")
    before, boots = {one.name: one for one in cluster.nodes()}, acting.boots(lab)
    done = acting.bringup(lab)
    after = {one.name: one for one in cluster.nodes()}
    assert done.returncode == 0, acting.said(done)
    assert "3 in-step" in done.stdout
    assert acting.boots(lab) == boots
    assert {name: (one.uid, one.taints, one.labels) for name, one in after.items()} == {
        name: (one.uid, one.taints, one.labels) for name, one in before.items()
    }
    assert jobs.bound(client, "train") == node
    assert [claim.name for claim in cluster.claims_on(node)] == ["train"]


def test_a_drifted_node_with_a_running_claim_is_skipped_as_busy_and_given_back(
    lab: testing.FreshLab, cluster: Cluster, client: lightkube.Client
) -> None:
    node = lab.nodes[0]
    lab.break_node(node, faults.Kind.OTHER_VERSION, package="libnccl2", version="2.27.7-1+cuda13.0")
    boot = lab.boot_id(node)
    done = acting.bringup(lab)
    after = view(cluster, node)
    assert done.returncode == 4, acting.said(done)
    assert f"{node}: busy" in done.stdout
    assert "pod default/train" in done.stdout
    assert not after.unschedulable
    assert after.fenced, "it deviates, so it takes no new jobs"
    assert lab.boot_id(node) == boot
    assert jobs.bound(client, "train") == node
    assert acting.package(lab, node, "libnccl2").endswith("2.27.7-1+cuda13.0")


def test_once_vacant_it_is_mended_and_takes_jobs_again(
    lab: testing.FreshLab, cluster: Cluster, client: lightkube.Client
) -> None:
    node = lab.nodes[0]
    jobs.end(client, "train")
    jobs.until(lambda: not cluster.pods_on(node), "the pod is not gone")
    done = acting.bringup(lab)
    assert done.returncode == 0, acting.said(done)
    assert "1 mended" in done.stdout
    seen = view(cluster, node)
    assert seen.admitted
    assert not seen.unschedulable
    assert acting.package(lab, node, "libnccl2") == "hi 2.28.9-1+cuda13.0"


def test_a_job_for_any_node_waits_while_the_only_free_one_is_drifted_and_is_bound_once_it_is_mended(
    lab: testing.FreshLab, cluster: Cluster, client: lightkube.Client
) -> None:
    node, mendable, _ = lab.nodes
    lab.break_node(node, faults.Kind.GPU_FIRMWARE, slot="gpu1")
    lab.break_node(mendable, faults.Kind.OTHER_VERSION, package="libnccl2", version="2.27.7-1+cuda13.0")
    broken = acting.bringup(lab)
    fenced = view(cluster, node)
    jobs.create(client, "fills", mendable, gpus=4)
    jobs.until(lambda: jobs.bound(client, "fills"), "a mended node takes a pod with a claim of all its GPUs")
    jobs.create(client, "waits")
    reason = jobs.until(lambda: jobs.refused(client, "waits"), "the scheduler has not looked at the pod")
    lab.mend_node(node)
    mended = acting.bringup(lab)
    assert broken.returncode == 1, acting.said(broken)
    assert "1 mended" in broken.stdout, "the fenced one uses up the budget; the other is out of service anyway"
    assert fenced.fenced
    assert fenced.in_step is False
    assert "0/2 nodes are available" in reason
    assert "1 cannot allocate all claims" in reason
    assert "untolerated taint" in reason
    assert mended.returncode == 0, acting.said(mended)
    assert view(cluster, node).admitted
    assert jobs.until(lambda: jobs.bound(client, "waits"), "the pod is not bound after the node was mended") == node
    with acting.book(lab) as book:
        assert book.fences() == {}
    for name, where in (("fills", mendable), ("waits", node)):
        jobs.end(client, name)
        jobs.until(lambda where=where: not cluster.pods_on(where), "the pod is not gone")  # type: ignore[misc]


def test_an_empty_journal_adopts_the_cluster_and_disturbs_nothing(lab: testing.FreshLab, cluster: Cluster) -> None:
    before, boots = {one.name: one for one in cluster.nodes()}, acting.boots(lab)
    acting.forget(lab)
    done = acting.bringup(lab)
    after = {one.name: one for one in cluster.nodes()}
    assert done.returncode == 0, acting.said(done)
    assert "2 adopted" in done.stdout
    assert acting.boots(lab) == boots
    assert {name: (one.uid, one.taints, one.labels, one.annotations) for name, one in after.items()} == {
        name: (one.uid, one.taints, one.labels, one.annotations) for name, one in before.items()
    }


def test_a_replaced_node_is_another_node_object_and_admitted(lab: testing.FreshLab, cluster: Cluster) -> None:
    node = lab.nodes[1]
    before = view(cluster, node)
    lab.break_node(node, faults.Kind.NODE_DEAD)
    done = lab.lockstep("replace", str(lab.fleet_file), node, "--allow", "reimage")
    assert done.returncode == 0, acting.said(done)
    after = view(cluster, node)
    assert after.uid != before.uid
    assert after.admitted
    assert after.ready


def test_a_pin_bump_taints_nobody_before_its_wave(lab: testing.FreshLab, cluster: Cluster) -> None:
    first, second, spare = lab.nodes
    before = view(cluster, first).lock_digest
    acting.edit_fleet(lab, lambda text: text.replace("pinset: 2026-09-lab-gb200", "pinset: 2026-10-lab-gb200"))
    with acting.running(lab, "bringup", str(lab.fleet_file)) as run:
        # The spare serves no jobs, so it is the canary.
        run.wait_for("canary", spare)
        run.wait_for("driver", "Packages of the lock")
        for node in (first, second):
            seen = view(cluster, node)
            assert seen.admitted
            assert seen.lock_digest == before
            assert not seen.unschedulable
        run.wait_for("wave of 1", first)
        run.wait_for("wave of 1", second)
        assert view(cluster, first).admitted, "the first is back before the second goes: the budget is one"
        run.process.wait()
    text = "\n".join(run.lines)
    assert run.process.returncode == 0, text
    assert "2 mended, 1 staged" in text
    for node in (first, second):
        seen = view(cluster, node)
        assert seen.admitted
        assert seen.lock_digest != before
        assert not seen.unschedulable
    with acting.book(lab) as book:
        assert {assigned.previous for assigned in book.assignments().values()} == {None}
