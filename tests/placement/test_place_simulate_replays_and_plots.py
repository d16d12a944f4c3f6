"""`lockstep place simulate` by its command line: traces, generated racks, a fleet file with jobs, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import pytest

from lockstep.cli import main
from placement import planner, requests
from placement.simulate import fleets, jobs

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{number},16000,65536,2,T4\n" for number in range(4))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{number},1000,1024,1,{500 if number % 2 else 1000},\n" for number in range(8)
)
FLEET = """\
fleet: two
pools:
  - name: pool
    sku: lab-gb200
    os: debian-12-amd64
    pinset: 2026-09-lab-gb200
    sources: [ssh]
    disruption: {allow: [install], wait: 30m, window: always, budget: 10%}
    nodes:
      n-[01-04]: {slot: "r1-u[01-04]", address: "127.91.1.[1-4]", domain: r1}
"""
PNG = b"\x89PNG\r\n\x1a\n"


def test_traces_of_a_folder_are_replayed_and_plotted_against_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_mine.csv").write_text(PODS)
    plot = tmp_path / "load.png"
    policies = ["--policy", "fgd", "--policy", "best-fit"]
    traces = ["--traces", str(tmp_path), "--trace", "mine"]
    assert main.run(["place", "simulate", *traces, *policies, "--plot", str(plot)]) == 0
    assert {"fgd", "best-fit"} <= set(capsys.readouterr().out.split())
    assert plot.read_bytes().startswith(PNG)


def test_generated_racks_are_replayed_and_plotted_over_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "use.svg"
    assert main.run(["place", "simulate", "--nvl72", "4", "--hours", "3", "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "occupancy" in out
    assert "<svg" in plot.read_text()


def test_a_fleet_file_with_jobs_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, jobs = tmp_path / "two.yaml", tmp_path / "jobs.json"
    fleet.write_text(FLEET)
    work = [
        {"request": {"members": [{"gpus": 4, "count": 4}], "need": "same-domain"}, "arrives": 0, "runs": 100},
        {"request": {"members": [{"gpus": 1}]}, "arrives": 50, "runs": 10},
        {"request": {"members": [{"gpus": 1}]}, "arrives": 200, "runs": 10},
    ]
    jobs.write_text(json.dumps(work))
    assert main.run(["place", "simulate", str(fleet), "--jobs", str(jobs)]) == 0
    assert "3 / 2 / 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("jobs", "complaint"),
    [
        ([{"request": {"members": [{"gpus": 1}]}, "runs": "10m"}], "`runs` is a number of seconds, got '10m'"),
        ([{"arrives": 1}], "a job needs `request`"),
        ({}, "jobs are a list"),
        ([], "jobs are a list"),
        ([{"request": {"name": "a", "members": [{"gpus": 1}]}}] * 2, "another job is named 'a'"),
        ([{"request": {"members": [{"gpus": 1, "memory": "5"}]}}], "`memory` needs one of the units"),
    ],
)
def test_a_wrong_job_names_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs: object, complaint: str
) -> None:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(jobs))
    assert main.run(["place", "simulate", "--nvl72", "2", "--jobs", str(path)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_folder_without_traces_and_a_fleet_without_jobs_are_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["place", "simulate", "--traces", str(tmp_path)]) == 2
    (tmp_path / "two.yaml").write_text(FLEET)
    assert main.run(["place", "simulate", str(tmp_path / "two.yaml")]) == 2
    assert "--jobs FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--nvl72", "2", "--plot", "/nowhere/x.png"], "--plot: there is no folder /nowhere"),
        (["--nvl72", "2", "--plot", "x.foo"], "--plot: x.foo is no plot"),
        (["--nvl72", "2", "--hours", "nan"], "--hours"),
        (["--nvl72", "2", "--load", "inf"], "--load"),
        (["--nvl72", "2", "--policy", "fgd"], "--policy: it has no meaning"),
        (["--nvl72", "2", "--trace", "default"], "--trace: it has no meaning"),
        (["--nvl72", "2", "--jobs", "jobs.json", "--hours", "3"], "--hours: it has no meaning"),
        (["--traces", ".", "--nvl72", "2"], "--nvl72: it has no meaning"),
        (["--traces", ".", "--seed", "-1"], "--seed"),
    ],
)
def test_what_would_be_ignored_or_fail_after_an_hour_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert main.run(["place", "simulate", *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pods", "complaint"),
    [
        ("", "no pod asks for a GPU"),
        ("p,1000,1024,0,0,\n", "no pod asks for a GPU"),
        ("p,1000\n", "openb_pod_list_mine.csv:2: not a pod"),
        ("p,1000,nan,1,500,\n", "openb_pod_list_mine.csv:2: not a pod"),
        ("p,1000,1024,1,1500,\n", "openb_pod_list_mine.csv:2: not a pod"),
    ],
)
def test_a_hostile_trace_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pods: str, complaint: str
) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_mine.csv").write_text(PODS.splitlines()[0] + "\n" + pods)
    assert main.run(["place", "simulate", "--traces", str(tmp_path), "--trace", "mine", "--policy", "ours"]) == 2
    assert complaint in capsys.readouterr().err


def test_load_and_what_is_free_in_pieces_are_recorded_with_every_event() -> None:
    fleet = fleets.nvl72(2)
    work = [
        jobs.Job(requests.parse({"name": f"j{number}", "members": [{"gpus": 4, "count": 12}]}), float(number), 10.0)
        for number in range(4)
    ]
    report = jobs.replay(planner.Planner(fleets.quiet_view(fleet)), [*work, jobs.Job(work[0].request, 11.5, 1.0)])
    per_job = 100 * 12 / 36
    asked, used, pieces = (list(column) for column in zip(*report.loads, strict=True))
    assert asked[:4] == pytest.approx([0, per_job, 2 * per_job, 3 * per_job])
    assert used[:4] == pytest.approx([0, per_job, 2 * per_job, 3 * per_job])
    # 12 of 36 nodes are gone: 6 + 18 are free, and the 6 are no block; of 24, none is.
    assert pieces[1] == pytest.approx(100 * 6 / 36)
    assert asked[4] == pytest.approx(4 * per_job)
    assert max(used) <= 100


def test_a_plot_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import figure

    plot = tmp_path / "use.png"
    plot.write_text("the one before")

    def dies(self: object, file: IO[bytes], **more: object) -> None:
        file.write(PNG)
        raise KeyboardInterrupt

    monkeypatch.setattr(figure.Figure, "savefig", dies)
    assert main.run(["place", "simulate", "--nvl72", "1", "--hours", "2", "--plot", str(plot)]) == 130
    assert plot.read_text() == "the one before"
    assert [path.name for path in tmp_path.iterdir()] == ["use.png"]
