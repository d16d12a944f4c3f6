"""An Ansible inventory becomes a fleet file, and what cannot be taken over is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from inventory import ansible, importing, load
from lockstep.base import issues, settings

WISHES = importing.Wishes("f", (), "lab-gb200", "debian-12-amd64", "2026-09-lab-gb200")


def _import(text: str, name: str = "hosts.ini", wishes: importing.Wishes = WISHES) -> tuple[str | None, list[str]]:
    report = issues.Report()
    found = ansible.read(text, name, report)
    made = importing.fleet_text(found, name, wishes, report) if found is not None else None
    return made, [issue.text() for issue in report.ordered()]


INI = """\
[gpu_nodes]
gpu-[01:03] ansible_user=root
gpu-09 ansible_host=10.0.0.19

[gpu_nodes:vars]
ansible_user=root
ansible_port=2222

[everything:children]
gpu_nodes
"""
YAML = """\
all:
  children:
    everything:
      children:
        gpu_nodes:
          hosts:
            gpu-[01:03]:
            gpu-09: {ansible_host: 10.0.0.19}
          vars: {ansible_user: root, ansible_port: 2222}
"""
MADE = """\
fleet: f
ssh: {user: root, port: 2222}
pools:
  - name: gpu-nodes
    sku: lab-gb200
    os: debian-12-amd64
    pinset: 2026-09-lab-gb200
    nodes:
      gpu-[01-03]: {}
      gpu-09: {address: "10.0.0.19"}
"""


@pytest.mark.parametrize(("text", "name"), [(INI, "hosts.ini"), (YAML, "hosts.yml")])
def test_both_forms_give_the_same_fleet_file_and_it_loads(text: str, name: str, tmp_path: Path) -> None:
    made, said = _import(text, name)
    assert made == MADE
    assert said == []
    file = tmp_path / "f.yaml"
    file.write_text(made)
    fleet = load.fleet(str(file), settings.load({"HOME": "/root"}, tmp_path))
    assert [node.name for node in fleet.nodes] == ["gpu-01", "gpu-02", "gpu-03", "gpu-09"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("n[1:3]", ["n1", "n2", "n3"]),
        ("n[08:10]", ["n08", "n09", "n10"]),
        ("n[1:7:3]", ["n1", "n4", "n7"]),
        ("n[a:c]", ["na", "nb", "nc"]),
        ("r[1:2]-n[1:2].x", ["r1-n1.x", "r1-n2.x", "r2-n1.x", "r2-n2.x"]),
        ("plain", ["plain"]),
    ],
)
def test_ranges_unfold_as_ansible_does(pattern: str, names: list[str]) -> None:
    assert list(ansible.unfold(pattern)) == names


@pytest.mark.parametrize("pattern", ["n[1-3]", "n[3:1]", "n[01:100]", "n[a:3]", "n[1:999999999]", "host:2222", "n[1:2"])
def test_ranges_that_ansible_would_not_take_or_that_are_too_large_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="`"):
        list(ansible.unfold(pattern))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]\nn1\n[b]\nn1\n", "hosts.ini:2: error: host `n1` is in the groups `a` and `b`"),
        ("[a]\nGPU_1\n", "hosts.ini:2: error: `GPU_1` is no node name"),
        ('[a]\nn1 ansible_host="{{ ip }}"\n', "hosts.ini:2: error: `ansible_host` of `n1` is a template"),
        ("[a]\nn1 ansible_connection=local\n", "hosts.ini:2: error: `n1` is not reached by SSH"),
        ("[a]\nn1 ansible_port=many\n", "hosts.ini:2: error: `many` is no port of `n1`"),
        ("[a:things]\nn1\n", "hosts.ini:1: error: unknown section `[a:things]`"),
        ("[a]\nn1 word\n", "hosts.ini:2: error: `word` is no variable of a host"),
        ("#!/bin/sh\n", "hosts.ini:1: error: this is a program, and inventories are not run"),
        ("[a:vars]\nx=1\n", "hosts.ini: error: no group lists a host"),
    ],
)
def test_what_cannot_be_taken_over_is_an_error_with_its_line(text: str, said: str) -> None:
    made, found = _import(text)
    assert made is None
    assert any(line.startswith(said) for line in found), found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]\nn1 ansible_become=yes rack=7\n", "`ansible_become` (1 of 1 hosts) is not taken over"),
        ("[a]\nn1 ansible_become=yes rack=7\n", "`rack` (1 of 1 hosts) is not taken over"),
        ("[a]\nn1 ansible_password=x\n", "use a key or an agent"),
        ("[a]\nn1 ansible_user=root\nn2 ansible_user=root\nn3\n", "user differs between hosts; root (on 2)"),
    ],
)
def test_what_has_no_place_in_a_fleet_file_is_a_warning(text: str, said: str) -> None:
    made, found = _import(text)
    assert made is not None
    assert any(said in line for line in found), found


def test_a_group_of_groups_can_be_the_pool() -> None:
    wishes = importing.Wishes("f", ("everything",), "lab-gb200", "debian-12-amd64", "2026-09-lab-gb200")
    made, said = _import(INI, wishes=wishes)
    assert made == MADE.replace("gpu-nodes", "everything")
    assert said == []


def test_the_variables_nearest_to_a_host_win() -> None:
    text = "[all:vars]\nansible_user=a\n[outer:children]\ninner\n[outer:vars]\nansible_user=b\n"
    text += "[inner]\nn1\nn2 ansible_user=d\n[inner:vars]\nansible_user=c\n"
    found = ansible.read(text, "hosts.ini", issues.Report())
    assert found is not None
    users = {name: found.effective(host)["ansible_user"] for name, host in found.hosts.items()}
    assert users == {"n1": "c", "n2": "d"}


def test_what_an_inventory_does_not_know_is_left_to_fill_in() -> None:
    made, said = _import("[a]\nn1\n", wishes=importing.Wishes())
    assert made is not None
    assert made.count("FILL-IN") == 3
    assert any("FILL-IN" in line for line in said)
