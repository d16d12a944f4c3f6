"""What a process really maps: files that lie, files without a name, frameworks with NCCL inside."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bringup.injob import judge, observe, variables
from bringup.injob.reports import Report
from lockstep.base import errors


def library(path: Path, text: str) -> Path:
    """A file with a maker's string inside, as long as a small library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF" + b"\0" * 5000 + text.encode() + b"\0" * 5000)
    return path


@contextmanager
def mapped(*paths: Path) -> Iterator[None]:
    """The files are mapped into this process."""
    held = []
    for path in paths:
        with path.open("rb") as file:
            held.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    yield
    for one in held:
        one.close()


def seen(**more: object) -> Report:
    """The report of this process, nothing loaded by it."""
    return observe.observe(0, 1, "s", loading=False, environment=more.pop("environment", {}))  # type: ignore[arg-type]


def test_the_string_inside_counts_and_not_the_files_name(tmp_path: Path) -> None:
    path = library(tmp_path / "libnccl.so.2.27.5", "NCCL version 2.23.4+cuda12.6")
    with mapped(path):
        report = seen()
    assert report.values["nccl@library"] == "2.23.4+cuda12.6"
    assert report.files["nccl@library"] == str(path)
    assert report.mapped


def test_two_copies_in_one_process_are_both_said(tmp_path: Path) -> None:
    one = library(tmp_path / "a" / "libnccl.so.2", "NCCL version 2.23.4")
    two = library(tmp_path / "b" / "libnccl.so.2", "NCCL version 2.27.5")
    with mapped(one, two):
        assert seen().values["nccl@library"] == "2.23.4 and 2.27.5"


def test_a_file_that_names_no_version_is_unreadable(tmp_path: Path) -> None:
    with mapped(library(tmp_path / "librccl.so.1", "nothing")):
        report = seen()
    assert "rccl@library" not in report.values
    assert "names no version" in report.unreadable["rccl@library"]


def test_a_version_by_the_real_files_name(tmp_path: Path) -> None:
    real = library(tmp_path / "libfabric.so.1.27.0", "x")
    (tmp_path / "libfabric.so.1").symlink_to(real)
    with mapped(tmp_path / "libfabric.so.1"):
        assert seen().values["libfabric@library"] == "1.27.0"


def test_nccl_inside_a_framework_is_found(tmp_path: Path) -> None:
    path = library(tmp_path / "libtorch_cuda.so", "NCCL version 2.30.4+cuda13.2")
    with mapped(path):
        report = seen()
    assert (report.values["nccl@library"], report.files["nccl@library"]) == ("2.30.4+cuda13.2", str(path))


def test_plugins_are_a_value_also_when_there_is_none(tmp_path: Path) -> None:
    assert seen().values["nccl.plugins@library"] == "absent"
    with mapped(library(tmp_path / "libnccl-net-ofi.so", "aws-ofi-nccl 1.17.2")):
        report = seen()
    assert report.values["nccl.plugins@library"] == "libnccl-net-ofi.so"
    assert report.values["aws-ofi-nccl@library"] == "1.17.2"


def test_variables_of_collectives_count_and_those_of_one_rank_do_not() -> None:
    environment = {"NCCL_ALGO": "Ring", "NCCL_DEBUG_FILE": "/tmp/%h.%p", "HOME": "/root", "FI_PROVIDER": "efa"}
    report = observe.observe(0, 1, "s", loading=False, environment=environment, ignored=["FI_PROVIDER"])
    assert {name: value for name, value in report.values.items() if name.startswith("variable")} == {
        "variable NCCL_ALGO": "Ring"
    }


def test_another_process_of_the_machine_can_be_looked_at(tmp_path: Path) -> None:
    path = library(tmp_path / "libnccl.so.2", "NCCL version 2.26.2")
    with mapped(path):
        child = os.fork()
        if child == 0:
            import signal

            signal.pause()
        try:
            report = observe.observe(0, 1, "s", pid=child, environment={})
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert report.values["nccl@library"] == "2.26.2"


def test_the_driver_tells_the_firmware_of_gpus_without_nvml(tmp_path: Path) -> None:
    for place, version in (("0000:1a:00.0", "97.00.B9.00.69"), ("0000:1b:00.0", "97.00.FA.00.09")):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA GB200\nVideo BIOS: \t {version}\nGPU Firmware: \t 580\n"
        )
    values: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    observe._firmware(values, unreadable, tmp_path)
    assert values == {"firmware.gpu@running": "97.00.B9.00.69 and 97.00.FA.00.09"}
    (tmp_path / "0000:1a:00.0" / "information").write_text("Video BIOS: \t ??.??.??.??.??\n")
    values.clear()
    observe._firmware(values, unreadable, tmp_path)
    assert values == {}
    assert "firmware.gpu@running" in unreadable


def test_firmware_of_amd_gpus_is_told_by_sysfs(tmp_path: Path) -> None:
    for number, version in ((0, "113-M350-01"), (1, "113-M350-01"), (2, "113-M350-02")):
        (tmp_path / f"card{number}" / "device").mkdir(parents=True)
        (tmp_path / f"card{number}" / "device" / "vbios_version").write_text(f"{version}\n")
    (tmp_path / "card3" / "device").mkdir(parents=True)  # the console of a BMC
    values: dict[str, str] = {}
    observe._firmware(values, {}, tmp_path / "none", tmp_path)
    assert values == {"firmware.ifwi@running": "113-M350-01 and 113-M350-02"}


def test_nccls_own_files_count_behind_the_environment_and_the_users_before_the_systems(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "etc" / "nccl.conf").write_text(
        "# NCCL_PROTO=LL\nNCCL_ALGO=Tree\nNCCL_IB_HCA=mlx5_0\nNCCL_NET=IB\nnoise\n"
    )
    (tmp_path / "root" / ".nccl.conf").write_text("NCCL_IB_HCA=mlx5_1\n")
    (tmp_path / "mine.conf").write_text("NCCL_IB_HCA=mlx5_2")
    plain = variables.with_files({"NCCL_ALGO": "Ring"}, tmp_path, "/root")
    assert plain == {"NCCL_ALGO": "Ring", "NCCL_IB_HCA": "mlx5_1", "NCCL_NET": "IB"}
    named = variables.with_files({"NCCL_CONF_FILE": "/mine.conf"}, tmp_path, "/root")
    assert named["NCCL_IB_HCA"] == "mlx5_2"
    assert "variable NCCL_CONF_FILE" not in variables.of_environment(named, variables.PER_RANK)
    (tmp_path / "etc" / "nccl.conf").write_bytes(b"\xff\x00=\nNCCL_ALGO=\xfe")
    assert variables.with_files({}, tmp_path, None)["NCCL_ALGO"] == "\ufffd"


def test_the_variables_of_another_process_are_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    path = library(tmp_path / "libnccl.so.2", "NCCL version 2.26.2")
    code = "import mmap,sys; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ); input()"
    words = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, env={"NCCL_ALGO": "Tree"}) as job:
        assert job.stdin is not None
        try:
            for _ in range(200):
                report = observe.observe(0, 1, "s", pid=job.pid)
                if report.mapped:
                    break
                time.sleep(0.05)
        finally:
            job.stdin.close()
    assert report.values["nccl@library"] == "2.26.2"
    assert report.values["variable NCCL_ALGO"] == "Tree"


def test_a_process_that_is_gone_is_unreadable_and_not_without_libraries() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    gone = observe.observe(0, 2, "s", pid=done.pid)
    assert "No such" in gone.unreadable["nccl@library"]
    other = Report(1, 2, "h", "s", "n", {"nccl@library": "2.27.5", "nccl.plugins@library": "absent"})
    verdict = judge.judge([gone, other], 2)
    assert verdict.exit_code is errors.ExitCode.NOT_MEASURED
    assert all(odd.unreadable for odd in verdict.odd)
