"""BMCs of sushy-tools' static emulator, honest and otherwise, read over sushy."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from bringup.redfish import bmc, inventory, source
from bringup.redfish.bmc import Answer, Failure, Way
from inventory.model import Bmc
from lab import bmc as lab_bmc
from lab.bmc import Habit
from lockstep.base import errors
from lockstep.base.credentials import Reference
from lockstep.cli import main
from tests.bringup import answers

from .test_what_a_bmcs_inventory_means import SKU, node

INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"


def tree(*members: dict[str, Any], **more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A small board; the first member is listed twice."""
    links = [{"@odata.id": f"{INVENTORY}/{one['Id']}"} for one in members]
    return {
        INVENTORY: {"@odata.id": INVENTORY, "Members": [*links, links[0]], "Members@odata.count": len(links) + 1},
        **{f"{INVENTORY}/{one['Id']}": {"@odata.id": f"{INVENTORY}/{one['Id']}", **one} for one in members},
        "/redfish/v1/Systems": {"Members": [{"@odata.id": f"/redfish/v1/Systems/{n}"} for n in ("HGX_0", "System_0")]},
        "/redfish/v1/Systems/HGX_0": {"Id": "HGX_0", "SerialNumber": "board"},
        "/redfish/v1/Systems/System_0": {"SerialNumber": "SN-7", "BiosVersion": "1.2.3", "PowerState": "On", **more},
    }


GPUS = tuple({"Id": f"HGX_FW_GPU_{n}", "Version": "96.00.A1.00.01", "Name": "GPU"} for n in range(2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return lab_bmc.unfold(tree(*GPUS), tmp_path / "tree")


def way(url: str, login: str = "admin:right", ca: Path | None = None) -> Way:
    user, _, password = login.partition(":")
    return Way(url, user, SecretStr(password), str(ca) if ca else None)


def read(url: str, seconds: float = 30, **more: Any) -> Answer | Failure:
    return bmc.read(way(url, **more), time.monotonic() + seconds)


def test_a_board_is_read_once_each_member(folder: Path) -> None:
    with lab_bmc.serving(folder, login="admin:right") as url:
        answer = read(url)
    assert isinstance(answer, Answer)
    assert [member["Id"] for member in answer.members] == ["HGX_FW_GPU_0", "HGX_FW_GPU_1"]
    assert answer.system["SerialNumber"] == "SN-7", "the host, not the GPU baseboard beside it"


def test_a_bmc_that_promises_expand_and_does_not_do_it_is_read_member_by_member(tmp_path: Path) -> None:
    folder = lab_bmc.unfold(tree(*GPUS), tmp_path / "tree", expand=True)
    with lab_bmc.serving(folder) as url:
        answer = read(url)
    assert isinstance(answer, Answer)
    assert len(answer.members) == 2


def test_a_wrong_password_is_a_failure_of_login(folder: Path) -> None:
    with lab_bmc.serving(folder, login="admin:right") as url:
        answer = read(url, login="admin:wrong-secret")
    assert answer == Failure("login", "the BMC refused user or password")


@pytest.mark.parametrize("habit", [Habit.HTML, Habit.CUT])
def test_what_is_no_redfish_is_said_so(folder: Path, habit: Habit) -> None:
    with lab_bmc.serving(folder, habit=habit) as url:
        answer = read(url)
    assert isinstance(answer, Failure)
    assert answer.kind == "answer"


def test_a_collection_that_leads_to_itself_ends(folder: Path) -> None:
    with lab_bmc.serving(folder, habit=Habit.CIRCLE) as url:
        answer = read(url, seconds=20)
    assert isinstance(answer, Answer)
    assert len(answer.members) == 2


def test_one_broken_member_costs_only_itself(folder: Path) -> None:
    with lab_bmc.serving(folder, habit=Habit.BROKEN_MEMBER) as url:
        answer = read(url)
    assert isinstance(answer, Answer)
    assert [member["Id"] for member in answer.members] == ["HGX_FW_GPU_0"]
    assert list(answer.unread) == ["HGX_FW_GPU_1"]


@pytest.mark.parametrize("habit", [Habit.FLOOD, Habit.SQUEEZED])
def test_an_answer_without_end_is_dropped_before_it_fills_anything(folder: Path, habit: Habit) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with lab_bmc.serving(folder, habit=habit) as url:
        answer = read(url)
    assert answer == Failure("answer", "too long: an answer of more than 4096 kB")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_a_member_without_end_costs_only_itself(folder: Path) -> None:
    with lab_bmc.serving(folder, habit=Habit.FLOOD_MEMBER) as url:
        answer = read(url)
    assert isinstance(answer, Answer)
    assert [member["Id"] for member in answer.members] == ["HGX_FW_GPU_0"]
    assert answer.unread == {"HGX_FW_GPU_1": "an answer of more than 4096 kB"}


def test_many_long_answers_together_are_too_much(tmp_path: Path) -> None:
    many = [{"Id": f"HGX_FW_GPU_{n}", "Version": "1", "Description": "x" * 3_000_000} for n in range(7)]
    with lab_bmc.serving(lab_bmc.unfold(tree(*many), tmp_path / "tree")) as url:
        answer = read(url)
    assert answer == Failure("answer", "too much: more than all of its firmware could be")


def test_a_bmc_that_trickles_is_left_at_the_deadline_by_its_own_thread(folder: Path) -> None:
    began = time.monotonic()
    with lab_bmc.serving(folder, habit=Habit.TRICKLE) as url:
        assert read(url, seconds=1.5) == Failure("timeout", "no answer in time")
    assert time.monotonic() - began < 10


def test_an_inventory_that_has_moved_to_another_host_is_not_followed(folder: Path) -> None:
    with lab_bmc.serving(folder, habit=Habit.ELSEWHERE, login="admin:right") as url:
        answer = read(url)
    assert isinstance(answer, Failure)
    assert "127.0.0.9" in answer.reason
    assert "not itself" in answer.reason


def test_a_bmc_that_points_at_another_host_gets_no_password_carried_there(tmp_path: Path, folder: Path) -> None:
    asked: list[str | None] = []

    class Thief(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization"))
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            return

    thief = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Thief)
    threading.Thread(target=thief.serve_forever, daemon=True).start()
    away = f"http://127.0.0.1:{thief.server_port}/redfish/v1/x"
    links = [{"@odata.id": f"{INVENTORY}/HGX_FW_GPU_0"}, {"@odata.id": away}, {"@odata.id": away.removeprefix("http:")}]
    lying = lab_bmc.unfold({**tree(*GPUS), INVENTORY: {"Members": links}}, tmp_path / "lying")
    try:
        with lab_bmc.serving(lying, login="admin:right") as url:
            answer = read(url)
    finally:
        thief.shutdown()
        thief.server_close()
    assert asked == []
    assert isinstance(answer, Answer)
    assert [member["Id"] for member in answer.members] == ["HGX_FW_GPU_0"]
    assert "no resource of its own" in answer.unread["x"]


def test_brackets_without_end_are_no_redfish(tmp_path: Path) -> None:
    folder = lab_bmc.unfold(tree(*GPUS), tmp_path / "tree")
    deep = folder / "UpdateService" / "FirmwareInventory" / "index.json"
    deep.write_text("[" * 200_000)
    with lab_bmc.serving(folder) as url:
        answer = read(url)
    assert isinstance(answer, Failure)
    assert answer.kind == "answer"


def test_nobody_listens_there() -> None:
    assert isinstance(answer := read("http://127.0.0.1:9"), Failure)
    assert answer.kind == "connection"


def test_a_reading_that_hangs_beyond_its_deadline_is_left_behind() -> None:
    released = threading.Event()

    def hanging(way: Way, until: float) -> Answer | Failure:
        released.wait(30)
        return Failure("answer", "late")

    at = Bmc(redfish="http://127.0.0.1:9", credentials=Reference(env="LOCKSTEP_TEST_BMC"))
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_TEST_BMC", "admin:right")
        found = source.read([source.Asked(node("n", bmc=at), SKU)], seconds=0.5, reader=hanging)
    released.set()
    assert found.nodes[node("n").name].unreachable == "BMC timeout: not done in 0 s"
    assert time.monotonic() - began < 10


def test_a_slow_bmc_and_a_trickling_one_end_at_their_deadline(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("admin:right\n")
    secret.chmod(0o600)

    def asked(name: str, url: str) -> source.Asked:
        at = Bmc(redfish=url, credentials=Reference(file=secret))
        return source.Asked(node(name, bmc=at), SKU)

    with (
        lab_bmc.serving(folder, login="admin:right") as good,
        lab_bmc.serving(folder, habit=Habit.SLOW) as slow,
        lab_bmc.serving(folder, habit=Habit.TRICKLE) as trickling,
    ):
        boards = [
            asked("good", good),
            asked("slow", slow),
            asked("trickling", trickling),
            source.Asked(node("none"), SKU),
        ]
        seen: list[str] = []
        # One thread: the trickling one must not keep it from the others.
        found = source.read(boards, seconds=2.5, concurrency=1, progress=lambda done, total, name: seen.append(name))
    said = {str(name): facts.unreachable for name, facts in found.nodes.items()}
    assert said == {
        "good": None,
        "slow": "BMC timeout: no answer in time",
        "trickling": "BMC timeout: no answer in time",
        "none": "BMC address: the fleet file gives no `bmc: {redfish: …}` for it",
    }
    assert sorted(seen) == ["good", "slow", "trickling"]
    assert found.nodes[node("good").name].serial == "SN-7"


def test_credentials_that_cannot_be_had_are_bad_input_before_any_bmc_is_asked(tmp_path: Path) -> None:
    at = Bmc(redfish="https://127.0.0.1:9", credentials=Reference(file=tmp_path / "nothing"))
    with pytest.raises(errors.InputError, match="cannot read"):
        source.read([source.Asked(node(bmc=at), SKU)])
    open_file = tmp_path / "open"
    open_file.write_text("no-colon")
    open_file.chmod(0o600)
    at = Bmc(redfish="https://127.0.0.1:9", credentials=Reference(file=open_file))
    with pytest.raises(errors.InputError, match="not USER:PASSWORD"):
        source.read([source.Asked(node(bmc=at), SKU)])


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate that a BMC made for itself, for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bmc")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "bmc.crt", tmp_path / "bmc.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_only_a_trusted_certificate_gets_the_password(folder: Path, certificate: tuple[Path, Path]) -> None:
    with lab_bmc.serving(folder, login="admin:right", tls=certificate) as url:
        stranger = read(url)
        known = read(url, ca=certificate[0])
    assert isinstance(stranger, Failure)
    assert stranger.kind == "tls"
    assert isinstance(known, Answer)


def test_the_audit_of_a_fleet_by_its_bmcs_alone_names_firmware_and_what_they_do_not_offer(
    folder: Path,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LOCKSTEP_STATE", str(tmp_path / "state"))
    login = tmp_path / "login"
    login.write_text("admin:right")
    login.chmod(0o600)
    path = answers.fleet_file(tmp_path, {"gpu-1": ""})
    with lab_bmc.serving(folder, login="admin:right", tls=certificate) as url:
        bmc_ = f"{{redfish: '{url}', ca: {certificate[0]}, credentials: {{file: {login}}}}}"
        path.write_text(path.read_text().replace("    nodes:\n", f"    bmc: {bmc_}\n    nodes:\n"))
        assert main.run(["audit", str(path), "--facts", "redfish", "--format", "json"]) == 1
    (pool,) = json.loads(capsys.readouterr().out)["pools"]
    seen = {one["coordinate"]: one["observed"] for one in pool["findings"]}
    assert seen["firmware.gpu[gpu0]@running"].startswith("96.00.A1.00.01")
    assert seen["firmware.gpu[gpu3]@running"] == "absent"
    assert seen["nccl@library"] == "unreadable: not offered"


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[Any]:
    """Starts sushy-tools' static emulator as it is, in a process of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> str:
        import socket

        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        words = [sys.executable, "-m", "sushy_tools.static.main", "-i", "127.0.0.1", "-p", str(port), "-m", str(folder)]
        started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        return f"http://127.0.0.1:{port}"

    yield start
    for process in started:
        process.kill()
        process.wait()


SAMPLES: Mapping[str, Mapping[str, str | None]] = {
    "gh200_FirmwareInventory.json": {
        "firmware.gpu[gpu0]@running": "96.00.A6.00.01",
        "firmware.gpu[gpu1]@running": "96.00.A6.00.01",
        "firmware.inforom[gpu1]@running": "G530.0225.00.02",
        "firmware.bmc@running": "gh200-24.05-2",
        "firmware.hmc@running": "gh200-24.05-2",
        "firmware.fpga[fpga0]@running": "0.3C",
        "firmware.cpu[cpu0]@running": "1.2.4",
        "firmware.erot[bmc]@running": "01.03.0136.0000_n01",
    },
    "dell_FirmwareInventory.json": {
        "firmware.bios@running": "1.8.2",
        "firmware.bios@flashed": "1.8.2",
        "firmware.bmc@running": "6.00.30.00",
    },
    # Of the card's own BMC: its image counts, and sentences and identifiers in place of versions are no facts.
    "bf3_FirmwareInventory.json": {"bfb@running": "2.5.0", "firmware.nic[nic0]@running": None},
    "lenovo_FirmwareInventory.json": {"firmware.bmc@running": "20e-1.40", "firmware.bios@running": "12A-1.02"},
}


def test_copies_of_what_the_host_knows_better_are_disabled_and_no_facts(samples: Path) -> None:
    """A GH200's own SoftwareInventory: the driver's version cut short (`550.80`)."""
    tree = json.loads((samples / "facts" / "redfish" / "gh200_SoftwareInventory.json").read_text())
    members = [one for one in tree.values() if "Version" in one]
    assert members
    assert {one["Status"]["State"] for one in members} == {"Disabled"}
    assert inventory.firmware(members, None) == ()
    assert inventory.firmware([{**one, "Status": {"State": "Enabled"}} for one in members], None) == ()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_boards_inventory_through_the_stock_emulator(
    name: str, samples: Path, stock: Any, tmp_path: Path
) -> None:
    folder = lab_bmc.unfold(json.loads((samples / "facts" / "redfish" / name).read_text()), tmp_path / "tree")
    answer = read(stock(folder), seconds=120)
    assert isinstance(answer, Answer)
    from pinsets import components

    facts = source.facts_of(source.Asked(node(), SKU), answer, 1.0, components.load())
    said = {str(at): str(fact.observation) for at, fact in facts.facts.items()}
    assert {key: said.get(key) for key in SAMPLES[name]} == SAMPLES[name]
    assert not [text for text in said.values() if "golden" in text or "0000:0000" in text]
    assert not [text for text in said.values() if "listed twice" in text]
