"""Statements about nodes: what is signed, what verifies, and everything that must not."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from inventory import load as fleets
from lockstep.base import errors, settings
from lockstep.base.names import NodeName
from lockstep.cli import main
from pinsets import load, signing, snapshots, statements
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Snapshot, Unreadable, Version
from pinsets.findings import NodeVerdict, Verdict
from pinsets.model import Lock

LOCK = load.lock("2026-09-lab-gb200", "debian-12-amd64")
READ_AT = 1767222000.0


def _facts(lock: Lock, node: str = "gpu-001", **changed: str) -> NodeFacts:
    sku = fleets.sku(lock.sku[0])
    facts = {}
    for at, pin in lock.coordinates(sku.all_slots()).items():
        value = changed.get(str(at.component).replace("-", "_"), pin.version)
        facts[at] = Fact(at, Version(value, f" {value}"), "ssh:file")
    for slot in sku.slots("gpu"):
        at = Coordinate.parse(f"gpu[{slot}]@running")
        facts[at] = Fact(at, Version("present", "present"), "ssh:nvidia-smi -q -x")
    attributes = {"gpus": ",".join(sku.slots("gpu")), "gpu.gpu0.serial": f"{node}-0", "gpu.gpu0.uuid": "GPU-1"}
    attributes |= {"fabric.cluster-uuid": f"fabric of {lock.pinset}", "fabric.clique": "32766"}
    return NodeFacts(
        NodeName(node), READ_AT, facts, boot_id=f"boot of {node}", serial=f"S-{node}", busy=(), attributes=attributes
    )


def _statement(facts: NodeFacts | None = None, verdict: Verdict = Verdict.ADMIT) -> statements.Statement:
    seen = facts if facts is not None else _facts(LOCK)
    judged = NodeVerdict(seen.node, verdict, (), LOCK.full)
    return statements.of_node(judged, seen, slot="r1-u01", pool="blackwell", fleet="lab", lock=LOCK)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(private key 0600, public key), PEM."""
    folder = tmp_path_factory.mktemp("keys")
    return _write_keys(folder, "audit", ed25519.Ed25519PrivateKey.generate())


def _write_keys(folder: Path, name: str, key: Any, *, ssh: bool = False) -> tuple[Path, Path]:
    private = serialization.PrivateFormat.OpenSSH if ssh else serialization.PrivateFormat.PKCS8
    coding = serialization.Encoding.OpenSSH if ssh else serialization.Encoding.PEM
    public = serialization.PublicFormat.OpenSSH if ssh else serialization.PublicFormat.SubjectPublicKeyInfo
    secret, open_ = folder / name, folder / f"{name}.pub"
    secret.touch(mode=0o600)
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    open_.write_bytes(key.public_key().public_bytes(coding, public))
    return secret, open_


def _signed(folder: Path, statement: statements.Statement, private: Path) -> Path:
    path = folder / "node.intoto.json"
    path.write_text(signing.sign(statement, signing.private_key(private)))
    return path


def test_a_statement_names_place_and_machine_lock_facts_boot_and_verdict(keys: tuple[Path, Path]) -> None:
    text = signing.sign(_statement(), signing.private_key(keys[0]))
    envelope = json.loads(text)
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    said = json.loads(base64.b64decode(envelope["payload"]))
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    (subject,) = said["subject"]
    assert subject["name"] == "r1-u01"
    assert subject["annotations"] == {"slot": "r1-u01", "serial": "S-gpu-001", "gpus": {"gpu0": "gpu-001-0"}}
    assert len(subject["digest"]["sha256"]) == 64
    predicate = said["predicate"]
    assert predicate["lock"] == {
        "pinset": LOCK.pinset,
        "os": LOCK.os,
        "full": LOCK.full,
        "job": LOCK.job,
    }
    assert predicate["bootId"] == "boot of gpu-001"
    assert predicate["verdict"] == "admit"
    assert predicate["observedAt"] == "2025-12-31T23:00:00Z"
    assert text == signing.sign(_statement(), signing.private_key(keys[0])), (
        "the same facts and key give the same bytes"
    )


def test_gpus_that_no_machine_type_names_are_told_by_their_address() -> None:
    seen = _facts(LOCK)
    attributes = {"gpu.pci:0008:01:00.0.serial": "165", "gpu.pci:0009:01:00.0.serial": "166", "gpu.count": "2"}
    said = _statement(dataclasses.replace(seen, attributes=attributes)).subject[0].annotations
    assert said.gpus == {"pci:0008:01:00.0": "165", "pci:0009:01:00.0": "166"}


def test_what_was_signed_verifies(keys: tuple[Path, Path], tmp_path: Path) -> None:
    path = _signed(tmp_path, _statement(), keys[0])
    assert signing.verify(path, [signing.public_key(keys[1])]) == _statement()
    assert signing.verify(path, [signing.public_key(keys[1])]) == _statement(), "and again"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda folder: _write_keys(folder, "k", ed25519.Ed25519PrivateKey.generate(), ssh=True), id="openssh"
        ),
        pytest.param(lambda folder: _write_keys(folder, "k", ec.generate_private_key(ec.SECP256R1())), id="ecdsa"),
        pytest.param(lambda folder: _write_keys(folder, "k", rsa.generate_private_key(65537, 2048)), id="rsa"),
    ],
)
def test_keys_of_the_usual_kinds_sign_and_verify(make: Callable[[Path], tuple[Path, Path]], tmp_path: Path) -> None:
    private, public = make(tmp_path)
    path = _signed(tmp_path, _statement(), private)
    assert signing.verify(path, [signing.public_key(public)]) == _statement()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_accepts_the_signature_too(keys: tuple[Path, Path], tmp_path: Path) -> None:
    envelope = json.loads(_signed(tmp_path, _statement(), keys[0]).read_text())
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    (tmp_path / "pae").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(keys[1]), "-rawin"]
    done = subprocess.run(
        [*command, "-in", str(tmp_path / "pae"), "-sigfile", str(tmp_path / "sig")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _repacked(envelope: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    said = json.loads(base64.b64decode(envelope["payload"]))
    change(said)
    return {**envelope, "payload": base64.b64encode(json.dumps(said).encode()).decode()}


def _flipped(envelope: dict[str, Any]) -> dict[str, Any]:
    signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    signature[5] ^= 1
    changed = {**envelope["signatures"][0], "sig": base64.b64encode(signature).decode()}
    return {**envelope, "signatures": [changed]}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda e: _repacked(e, lambda s: s["predicate"].update(verdict="drifted")), id="another verdict"),
        pytest.param(lambda e: _repacked(e, lambda s: None), id="the same statement in other bytes"),
        pytest.param(lambda e: {**e, "payloadType": "text/plain"}, id="another type"),
        pytest.param(_flipped, id="a flipped bit of the signature"),
        pytest.param(lambda e: {**e, "signatures": []}, id="no signature"),
        pytest.param(lambda e: {**e, "signatures": [{"sig": e["signatures"][0]["sig"]}]}, id="no key id"),
        pytest.param(lambda e: {**e, "signatures": [{**e["signatures"][0], "sig": "!"}]}, id="bad base64"),
        pytest.param(lambda e: {**e, "signatures": e["signatures"] * 2}, id="the same signature twice"),
        pytest.param(lambda e: {"payload": e["payload"]}, id="half an envelope"),
        pytest.param(lambda e: [e], id="a list"),
        pytest.param(lambda e: 7, id="a number"),
    ],
)
def test_what_was_changed_is_not_verified(
    spoil: Callable[[dict[str, Any]], Any], keys: tuple[Path, Path], tmp_path: Path
) -> None:
    path = _signed(tmp_path, _statement(), keys[0])
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.raises(errors.InputError, match="not verified"):
        signing.verify(path, [signing.public_key(keys[1])])


def test_another_key_does_not_verify_even_under_the_same_key_id(keys: tuple[Path, Path], tmp_path: Path) -> None:
    path = _signed(tmp_path, _statement(), keys[0])
    _, other = _write_keys(tmp_path, "other", ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(errors.InputError, match="no given key signed it"):
        signing.verify(path, [signing.public_key(other)])
    envelope = json.loads(path.read_text())
    envelope["signatures"][0]["keyid"] = signing.public_key(other).keyid
    path.write_text(json.dumps(envelope))
    with pytest.raises(errors.InputError, match="no given key signed it"):
        signing.verify(path, [signing.public_key(other)])


def test_a_statement_of_another_kind_is_not_verified_though_the_key_signed_it(
    keys: tuple[Path, Path], tmp_path: Path
) -> None:
    from securesystemslib.dsse import Envelope

    for body, kind, reason in (
        (b'{"_type": "https://in-toto.io/Statement/v0.1"}', signing.PAYLOAD_TYPE, "_type"),
        (b"no json", signing.PAYLOAD_TYPE, "no JSON"),
        (b"[" * 200_000, signing.PAYLOAD_TYPE, "no JSON"),
        (b"{}", "text/plain", "no in-toto statement"),
    ):
        envelope = Envelope(body, kind, {})
        envelope.sign(signing.private_key(keys[0]))
        path = tmp_path / "other.intoto.json"
        path.write_text(json.dumps(envelope.to_dict()))
        with pytest.raises(errors.InputError, match=reason):
            signing.verify(path, [signing.public_key(keys[1])])


def test_a_private_key_that_others_can_read_or_that_has_a_passphrase_is_refused(
    keys: tuple[Path, Path], tmp_path: Path
) -> None:
    loose = tmp_path / "loose"
    loose.write_bytes(keys[0].read_bytes())
    loose.chmod(0o644)
    with pytest.raises(errors.InputError, match="others can read"):
        signing.private_key(loose)
    locked = tmp_path / "locked"
    locked.touch(mode=0o600)
    locked.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    with pytest.raises(errors.InputError, match="passphrase"):
        signing.private_key(locked)
    with pytest.raises(errors.InputError, match="is no private key"):
        signing.private_key(_chmod(tmp_path / "text", b"hello"))
    with pytest.raises(errors.InputError, match="is no public key"):
        signing.public_key(_chmod(tmp_path / "text", b"hello"))
    with pytest.raises(errors.InputError, match="cannot be read"):
        signing.private_key(tmp_path / "none")


def _chmod(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


def test_facts_have_one_digest_whatever_their_order_and_time() -> None:
    seen = _facts(LOCK)
    other = dataclasses.replace(seen, facts=dict(reversed(seen.facts.items())), observed_at=0.0)
    assert statements.facts_digest(seen) == statements.facts_digest(other)
    at = Coordinate.parse("driver@running")
    for observation in (ABSENT, Unreadable("absent"), Version("580.105.08", "580.105.08"), Version("1", " 580.105.08")):
        changed = {**seen.facts, at: Fact(at, observation, "ssh:file")}
        assert statements.facts_digest(dataclasses.replace(seen, facts=changed)) != statements.facts_digest(seen)


def test_a_good_signature_is_not_enough() -> None:
    seen = _facts(LOCK)
    good = _statement(seen)
    assert statements.problems(good, now=READ_AT + 60, max_age=3600, facts={"gpu-001": seen}, lock=LOCK) == []
    (subject,) = good.subject
    moved = subject.model_copy(update={"annotations": subject.annotations.model_copy(update={"slot": "r1-u02"})})
    other_lock = load.lock("2026-10-lab-gb200", "debian-12-amd64")
    rebooted = dataclasses.replace(seen, boot_id="another")
    cases: list[tuple[statements.Statement, dict[str, Any], str]] = [
        (good, {"max_age": 30}, "60 s old, allowed are 30"),
        (good, {"now": READ_AT - 3600}, "from the future"),
        (good, {"lock": other_lock}, f"names lock {LOCK.full[:16]}"),
        (good, {"facts": {"gpu-001": _facts(LOCK, driver="1.2.3")}}, "facts are not those"),
        (good, {"facts": {"gpu-001": rebooted}}, "is of boot another"),
        (good, {"facts": {}}, "has no node gpu-001"),
        (good.model_copy(update={"subject": (moved,)}), {}, "digest is not that of r1-u02"),
        (good.model_copy(update={"subject": ()}), {}, "about 0 machines"),
    ]
    for statement, given, text in cases:
        said = statements.problems(statement, **{"now": READ_AT + 60, **given})
        assert len(said) == 1, (text, said)
        assert text in said[0]


@pytest.mark.parametrize("node", ["../../etc/x", "..", "", "gpu/001", "a\x00b", "\ud800", "x" * 1000])
def test_a_nodes_name_never_leads_out_of_the_folder_nor_to_another_nodes_file(node: str) -> None:
    assert re.fullmatch(r"(?!\.)[A-Za-z0-9._-]{0,200}-[0-9a-f]{12}\.intoto\.json", statements.file_name(node))
    assert statements.file_name("gpu-001") == "gpu-001.intoto.json"
    assert statements.file_name("gpu_001") != statements.file_name("gpu/001")


@pytest.fixture
def audited(
    checkout: Path, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Path, Path]]:
    """Runs `audit lab --sign` over a snapshot in which every node equals its lock but for what is changed."""
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("LOCKSTEP_STATE", str(tmp_path / "state"))

    def run(**changed: str) -> tuple[int, Path, Path]:
        fleet = fleets.fleet("lab", settings.load())
        locks = load.fleet_locks(fleet)
        nodes = {
            node.name: _facts(locks[pool.name], node.name, **(changed if node.name == "gpu-002" else {}))
            for pool in fleet.pools
            for node in pool.nodes
        }
        reading, folder = tmp_path / "reading.jsonl.gz", tmp_path / "statements"
        snapshots.write(reading, Snapshot(READ_AT, nodes))
        words = ["audit", "lab", "--facts", str(reading), "--sign", str(keys[0]), "--statements", str(folder)]
        return main.run(words), folder, reading

    return run


def test_audit_signs_one_statement_a_node_and_verify_checks_them(
    audited: Callable[..., tuple[int, Path, Path]], keys: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, folder, reading = audited()
    assert code == 0
    assert len(list(folder.iterdir())) == 8
    capsys.readouterr()
    words = ["verify", str(folder), "--key", str(keys[1])]
    code = main.run([*words, "--facts", str(reading), "--format", "json"])
    rows = {row["predicate"]["node"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["gpu-001"]["subject"][0]["name"] == "r1-u01"
    assert {row["predicate"]["verdict"] for row in rows.values()} == {"admit"}
    assert code == 0
    assert main.run([*words, "--max-age", "1h"]) == 2
    assert "s old, allowed are 3600" in capsys.readouterr().err
    assert main.run([*words, "--lock", "2026-09-lab-gb200@debian-12-amd64"]) == 2
    said = capsys.readouterr()
    assert said.err.count("it names lock") == 3, "the three nodes of the other pool"
    assert "gpu-001" in said.out
    assert "gpu-101" not in said.out, "what is not about the lock that was asked for is not shown"


def test_a_verdict_that_is_not_in_step_verifies_and_leaves_with_one(
    audited: Callable[..., tuple[int, Path, Path]], keys: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, folder, _ = audited(driver="580.95.05")
    assert code == 1
    capsys.readouterr()
    assert main.run(["verify", str(folder / "gpu-002.intoto.json"), "--key", str(keys[1])]) == 1
    assert "drifted" in capsys.readouterr().out


def test_verify_shows_nothing_of_what_is_not_verified(
    keys: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = _signed(tmp_path, _statement(), keys[0])
    bad = tmp_path / "bad.intoto.json"
    bad.write_text(good.read_text().replace('"sig": "', '"sig": "AAAA'))
    assert main.run(["verify", str(tmp_path), "--key", str(keys[1])]) == 2
    said = capsys.readouterr()
    assert said.out.count("r1-u01") == 1
    assert f"{bad}: not verified" in said.err
    assert main.run(["verify", str(tmp_path / "none"), "--key", str(keys[1])]) == 2
    bad.write_text("[" * 200_000)
    assert main.run(["verify", str(bad), "--key", str(keys[1])]) == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main.run(["verify", str(empty), "--key", str(keys[1])]) == 2
    assert "holds no statement" in capsys.readouterr().err


def test_a_key_that_cannot_sign_is_said_before_anything_is_read(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout)
    assert main.run(["audit", "lab", "--sign", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
