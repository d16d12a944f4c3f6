"""Credentials of a lab's control plane: certificates, the static token file, kubeconfigs. All 0600, never in argv.

etcd has no users, so it listens with TLS and asks for a client certificate: an open
etcd on loopback would make every local user of the machine root in the lab.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import ipaddress
import json
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from lab import control_plane_files as files

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "ADMIN",
    "CONTROLLER_MANAGER",
    "KWOK",
    "NODE_PREFIX",
    "SCHEDULER",
    "WATCHER",
    "Pki",
    "User",
    "ensure_pki",
    "ensure_tokens",
    "kubeconfig",
    "read_tokens",
    "users",
]

LIFE = datetime.timedelta(days=3650)
"""A lab is thrown away long before; nothing renews its certificates."""
NODE_PREFIX = "system:node:"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """One line of the static token file."""

    name: str
    group: str


ADMIN = User("lockstep-lab-admin", "system:masters")
CONTROLLER_MANAGER = User("system:kube-controller-manager", "")
SCHEDULER = User("system:kube-scheduler", "")
KWOK = User("lockstep-lab-kwok", "system:masters")
WATCHER = User("lockstep-lab-watcher", "system:masters")


def users(nodes: Iterable[str]) -> tuple[User, ...]:
    """Everyone who gets a token: the programs and one user per lab node, as a kubelet is known to a real cluster."""
    programs = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK, WATCHER)
    return (*programs, *(User(NODE_PREFIX + node, "system:nodes") for node in sorted(nodes)))


def ensure_tokens(folder: Path, wanted: Iterable[User]) -> dict[str, SecretStr]:
    """User name → token, kept over runs in ``folder/tokens.csv``; a user that is not wanted loses its token."""
    path = folder / "tokens.csv"
    known = {row[1]: row[0] for row in csv.reader(io.StringIO(path.read_text()))} if path.exists() else {}
    tokens = {user.name: known.get(user.name) or secrets.token_urlsafe(32) for user in wanted}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for user in wanted:
        writer.writerow([tokens[user.name], user.name, user.name, *([user.group] if user.group else [])])
    if not path.exists() or path.read_text() != text.getvalue():
        files.write_private(path, text.getvalue())
    return {name: SecretStr(token) for name, token in tokens.items()}


def kubeconfig(server: str, authority: Path, user: User, token: SecretStr) -> str:
    """Text of a kubeconfig with one cluster, one user and one context, all named ``lab`` and the user's name.

    It is JSON, which every reader of YAML reads.
    """
    import base64

    certificate = base64.b64encode(authority.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": certificate}}],
        "users": [{"name": user.name, "user": {"token": token.get_secret_value()}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user.name}}],
        "current-context": "lab",
    }
    return json.dumps(document, indent=1) + "\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Pki:
    """Paths of PEM files."""

    folder: Path

    @property
    def authority(self) -> Path:
        """Certificate of the lab's own authority."""
        return self.folder / "ca.crt"

    @property
    def service_accounts(self) -> Path:
        """Private key that signs service account tokens."""
        return self.folder / "service-accounts.key"

    def certificate(self, name: str) -> Path:
        """Certificate of ``api``, ``etcd`` or ``etcd-client``."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Private key of ``api``, ``etcd`` or ``etcd-client``."""
        return self.folder / f"{name}.key"


def ensure_pki(folder: Path) -> Pki:
    """Make authority, certificates and keys at the first call, all or none of them (a rename at the end)."""
    final = folder / "pki"
    if not final.exists():
        fresh = folder / "pki.new"
        shutil.rmtree(fresh, ignore_errors=True)
        _write_pki(Pki(files.ensure_folder(fresh)))
        fresh.rename(final)
    return Pki(final)


def _write_pki(pki: Pki) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
    from cryptography.x509.oid import NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def save_key(path: Path) -> ec.EllipticCurvePrivateKey:
        key = ec.generate_private_key(ec.SECP256R1())
        # The API server takes no PKCS#8 for the key of service accounts.
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        files.write_private(path, key.private_bytes(encoding, form, serialization.NoEncryption()))
        return key

    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    authority_key = save_key(pki.key("ca"))
    issuer = named("lockstep-lab")

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now, now + LIFE)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False)
        )

    def save_certificate(path: Path, unsigned: x509.CertificateBuilder) -> None:
        signed = unsigned.sign(authority_key, hashes.SHA256())
        files.write_private(path, signed.public_bytes(serialization.Encoding.PEM))

    save_certificate(pki.authority, builder(issuer, authority_key, authority=True).add_extension(_signs(), True))
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    # etcd's own gateway dials etcd with the serving certificate, hence both uses.
    roles = {
        "api": [Usage.SERVER_AUTH],
        "etcd": [Usage.SERVER_AUTH, Usage.CLIENT_AUTH],
        "etcd-client": [Usage.CLIENT_AUTH],
    }
    for name, uses in roles.items():
        key = save_key(pki.key(name))
        unsigned = builder(named(f"lockstep-lab-{name}"), key, authority=False)
        unsigned = unsigned.add_extension(x509.ExtendedKeyUsage(uses), critical=False).add_extension(here, False)
        save_certificate(pki.certificate(name), unsigned)
    save_key(pki.service_accounts)


def _signs() -> x509.KeyUsage:
    from cryptography import x509

    flags = dict.fromkeys(
        ("key_encipherment", "content_commitment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    return x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **flags)


def read_tokens(folder: Path) -> dict[str, SecretStr]:
    """User name → token, as `ensure_tokens` wrote them."""
    rows = csv.reader(io.StringIO((folder / "tokens.csv").read_text()))
    return {row[1]: SecretStr(row[0]) for row in rows}
