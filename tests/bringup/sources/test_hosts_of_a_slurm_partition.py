"""Hosts of a partition, by the real sinfo of a real controller on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup.sources import slurm
from lockstep.base import errors

pytestmark = pytest.mark.debian

CONF = """\
ClusterName=lab
MailProg=/bin/true
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/m/s
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/run/ctld.pid
SlurmctldLogFile={folder}/ctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=gpu-[01-03] NodeHostname=localhost NodeAddr=127.90.97.[1-3] Port=[17001-17003] CPUs=1 State=UNKNOWN
PartitionName=gpu Nodes=gpu-[01-03] Default=YES State=UP
PartitionName=all Nodes=gpu-[01-03] State=UP
PartitionName=none State=UP
"""


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """slurm.conf of a running controller; munge's and its own files in a folder of the test."""
    missing = [
        name for name in ("munged", "slurmctld", "sinfo") if shutil.which(name, path="/usr/sbin:/usr/bin") is None
    ]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian's munge and slurm-wlm)")
    if os.geteuid() != 0:
        pytest.skip("slurmctld and munged are started as root here")
    folder = tmp_path_factory.mktemp("slurm")
    for name, mode in (("m", 0o711), ("state", 0o700), ("spool", 0o700), ("run", 0o755)):
        (folder / name).mkdir()
        # munge refuses a socket whose folder others cannot enter.
        (folder / name).chmod(mode)
    key = folder / "m" / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, port=port))
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    files = [
        f"--{word}={folder}/m/{name}"
        for word, name in (
            ("key-file", "munge.key"),
            ("socket", "s"),
            ("pid-file", "pid"),
            ("log-file", "log"),
            ("seed-file", "seed"),
        )
    ]
    started = [
        subprocess.Popen(["/usr/sbin/munged", "--foreground", "--force", *files]),
        subprocess.Popen(
            ["/usr/sbin/slurmctld", "-D"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ),
    ]
    try:
        until = time.monotonic() + 60
        while subprocess.run(["sinfo", "-h"], env=environment, capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < until, (folder / "ctld.log").read_text()[-2000:]
            time.sleep(0.2)
        yield conf
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def test_nodes_of_a_partition_with_slurms_addresses(controller: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(controller))
    found = slurm.hosts("gpu")
    assert {str(name): target.address for name, target in found.items()} == {
        "gpu-01": "127.90.97.1",
        "gpu-02": "127.90.97.2",
        "gpu-03": "127.90.97.3",
    }
    assert set(slurm.hosts("all,gpu")) == set(found)


@pytest.mark.parametrize("name", ["nowhere", "none"])
def test_a_partition_without_nodes_is_not_measured(
    controller: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(controller))
    with pytest.raises(errors.NotMeasuredError, match=f"partition {name} has no node"):
        slurm.hosts(name)


def test_without_slurm_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.NotMeasuredError, match="no `sinfo` here"):
        slurm.hosts("gpu")


@pytest.mark.parametrize("name", ["-h", "a b", "a;b", "$(id)", "", "x\n"])
def test_a_name_that_is_an_option_or_a_shell_word_is_refused(name: str) -> None:
    with pytest.raises(errors.InputError, match="no partition"):
        slurm.hosts(name)


def test_a_node_name_that_is_no_host_is_refused() -> None:
    with pytest.raises(errors.InputError, match="no host name"):
        slurm.parse("gpu-1|127.0.0.1|idle\n-oProxyCommand=id|x|idle\n")


def test_an_answer_that_is_no_text_names_no_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "sinfo"
    program.write_text("#!/bin/sh\nprintf 'gpu-\\377\\033[2J|127.0.0.1|idle\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.InputError, match="no host name"):
        slurm.hosts("gpu")
