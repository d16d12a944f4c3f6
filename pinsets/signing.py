"""Statements in signed envelopes (DSSE), with a key on this machine and without any network.

The library signs and verifies bytes; what they mean is checked here and in `statements`.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pydantic

from lockstep.base import errors
from pinsets import statements
from pinsets.statements import Statement

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

__all__ = ["PAYLOAD_TYPE", "private_key", "public_key", "sign", "verify"]

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
ENVELOPE_BYTES: Final = 1024 * 1024
"""A statement is 2 kB; a file of this size is something else."""


def private_key(path: Path) -> CryptoSigner:
    """The signer of a private key file: PEM (PKCS#8) or OpenSSH, without a passphrase, readable by its owner alone.

    Raises `errors.InputError`.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from securesystemslib.signer import CryptoSigner

    data = _read(path)
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise errors.InputError("others can read this private key", place=str(path), hint=f"chmod 600 {path}")
        openssh = b"BEGIN OPENSSH PRIVATE KEY" in data
        load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
        return CryptoSigner(load(data, None))
    except TypeError as error:
        raise errors.InputError(
            "the key has a passphrase, and nobody is asked for one here", place=str(path), hint="use a key without one"
        ) from error
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise errors.InputError(f"is no private key that can sign: {error}", place=str(path), hint=_MAKE) from error


_MAKE: Final = "make one: openssl genpkey -algorithm ed25519 -out KEY; openssl pkey -in KEY -pubout -out KEY.pub"


def public_key(path: Path) -> SSlibKey:
    """A public key file: PEM, or one line of OpenSSH. Raises `errors.InputError`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from securesystemslib.signer import SSlibKey

    data = _read(path)
    try:
        openssh = data.lstrip().startswith((b"ssh-", b"ecdsa-"))
        key = serialization.load_ssh_public_key(data) if openssh else serialization.load_pem_public_key(data)
        return SSlibKey.from_crypto(key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise errors.InputError(f"is no public key: {error}", place=str(path), hint=_MAKE) from error


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > ENVELOPE_BYTES:
            raise errors.InputError(f"is larger than {ENVELOPE_BYTES} bytes", place=str(path))
        return path.read_bytes()
    except OSError as error:
        raise errors.InputError(f"cannot be read: {error.strerror}", place=str(path)) from error


def sign(statement: Statement, signer: CryptoSigner) -> str:
    """The envelope's JSON text, one line."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(statements.payload(statement), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return json.dumps(envelope.to_dict(), sort_keys=True) + "\n"


def verify(path: Path, keys: Sequence[SSlibKey]) -> Statement:
    """The statement in an envelope that one of ``keys`` signed. Raises `errors.InputError`: not verified, and why.

    The bytes are verified before anything in them is looked at.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    place = str(path)
    try:
        # A fresh value each time: the library changes the dict that it is given.
        data: Any = json.loads(_read(path))
        envelope = Envelope.from_dict(data)
        envelope.verify(list(keys), 1)
    except (VerificationError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # A signature without a key id, bad base64 and JSON that is no envelope are as bad as a wrong signature.
        reason = (
            "no given key signed it" if isinstance(error, VerificationError) else f"is no signed envelope: {error!r}"
        )
        raise errors.InputError(f"not verified: {reason}", place=place) from error
    if envelope.payload_type != PAYLOAD_TYPE:
        raise errors.InputError(f"not verified: it holds {envelope.payload_type!r}, no in-toto statement", place=place)
    try:
        return Statement.model_validate(json.loads(envelope.payload))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise errors.InputError(f"not verified: {where}: {first['msg']}", place=place) from error
    except (ValueError, RecursionError) as error:
        raise errors.InputError("not verified: what was signed is no JSON", place=place) from error
