"""One BMC: a few GETs over sushy, one after the other, never two at once; failures by class.

sushy repeats any request after a read time-out, a POST too, so only reads are made here; it is asked for one try
(``server_side_retries=1``: in it 0 means three). Every wait has a limit; the whole has one that the caller keeps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import SecretStr

from lockstep.base import errors

__all__ = ["Answer", "Failure", "Way", "read"]

CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 60.0
"""One answer. A DGX H100's BMC takes minutes for the whole collection, seconds for a member."""
MEMBERS: Final = 500
"""More firmware than any machine has: a BMC that lists it is answering in circles."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a BMC is reached."""

    url: str
    user: str
    password: SecretStr
    ca: str | None = None
    """File of certificates that are trusted; None: the system's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Payloads as the BMC sent them."""

    members: tuple[Mapping[str, Any], ...] = ()
    """Of the firmware inventory, each once."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Member → why it could not be read."""
    system: Mapping[str, Any] = field(default_factory=dict)
    bios: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a BMC gave nothing."""

    kind: str
    """``connection``, ``tls``, ``login``, ``timeout``, ``answer``."""
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def read(way: Way, until: float) -> Answer | Failure:
    """Firmware inventory, system and BIOS settings of one BMC; ``until`` is a time of `time.monotonic`.

    Raises `errors.EngineError` only when sushy is not installed.
    """
    try:
        import requests
        import sushy
        from sushy import auth, connector, exceptions

        from bringup.redfish import limited
    except ImportError as error:
        raise errors.EngineError(
            "reading BMCs needs sushy",
            hint="install it with its extra, 'lockstep-fleet[bringup] @ git+URL', or use a checkout (`make`)",
        ) from error
    conn = connector.Connector(
        way.url,
        verify=way.ca or True,
        default_request_timeout=REQUEST_SECONDS,
        connect_timeout=CONNECT_SECONDS,
        server_side_retries=1,
        server_side_retries_delay=1,
    )
    for scheme in ("http://", "https://"):
        conn._session.mount(scheme, limited.Adapter(way.url, until))
    try:
        basic = auth.BasicAuth(way.user, way.password.get_secret_value())
        root = sushy.Sushy(way.url, auth=basic, connector=conn)
        return _Visit(conn, root.json, until).go()
    except exceptions.AccessError:
        return Failure("login", "the BMC refused user or password")
    except exceptions.ConnectionError as error:
        return _connection(error)
    except (exceptions.SushyError, requests.exceptions.RequestException) as error:
        return Failure("answer", _short(error))
    except limited.TooLongError as error:
        return Failure("answer", f"too long: {error}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # Half an answer, HTML where JSON was promised, or brackets without end.
        return Failure("answer", f"no Redfish: {_short(error)}")
    except TimeoutError:
        return Failure("timeout", "no answer in time")
    except limited.Flooded as error:
        return Failure("answer", f"too much: {error}")
    finally:
        conn.close()


def _connection(error: Exception) -> Failure:
    text = str(error)
    if "certificate" in text.lower() or "SSL" in text:
        return Failure("tls", "its certificate is not trusted; give `ca:` with the certificate of its maker or its own")
    if "timed out" in text.lower():
        return Failure("timeout", "no answer in time")
    return Failure("connection", _short(error))


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


class _Visit:
    def __init__(self, conn: Any, root: Mapping[str, Any], until: float) -> None:
        self._conn = conn
        self._root = root
        self._until = until

    def go(self) -> Answer:
        members, unread = self._inventory()
        system: Mapping[str, Any] = {}
        bios: Mapping[str, Any] = {}
        for system in self._systems():
            link = _link(system, "Bios")
            if link is not None:
                bios = self._maybe(link) or {}
            break
        return Answer(tuple(members), unread, system, bios)

    def _get(self, path: str) -> Mapping[str, Any]:
        if time.monotonic() >= self._until:
            raise TimeoutError
        if not path.startswith("/redfish/"):
            # sushy takes a link to another host as it is, and sends the password there.
            raise ValueError(f"the BMC points at {path!r}, which is no resource of its own")
        value = self._conn.get(path).json()
        if not isinstance(value, Mapping):
            raise TypeError(f"{path} is no object")
        return value

    def _maybe(self, path: str) -> Mapping[str, Any] | None:
        """A resource that not every BMC has."""
        from sushy import exceptions

        try:
            return self._get(path)
        except exceptions.HTTPError:
            return None

    def _inventory(self) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
        service = _link(self._root, "UpdateService")
        path = _link(self._get(service), "FirmwareInventory") if service else None
        if path is None:
            return [], {"FirmwareInventory": "the BMC has none"}
        listed, whole = self._list(path)
        members: list[Mapping[str, Any]] = []
        unread: dict[str, str] = {}
        from sushy import exceptions

        for name in listed:
            if name in whole:
                members.append(whole[name])
                continue
            try:
                members.append(self._get(name))
            except (exceptions.HTTPError, exceptions.ConnectionError, ValueError, TypeError, RecursionError) as error:
                unread[name.rpartition("/")[2]] = _short(error)
        return members, unread

    def _list(self, path: str) -> tuple[list[str], dict[str, Mapping[str, Any]]]:
        """(names of the members, each once; those that came whole). GH200's BMC lists one member twice."""
        features = self._root.get("ProtocolFeaturesSupported")
        expand = features.get("ExpandQuery") if isinstance(features, Mapping) else None
        able = isinstance(expand, Mapping) and (expand.get("NoLinks") is True or expand.get("ExpandAll") is True)
        names: dict[str, None] = {}
        whole: dict[str, Mapping[str, Any]] = {}
        following: str | None = f"{path}?$expand=." if able else path
        while following is not None and len(names) < MEMBERS:
            collection = self._get(following)
            for member in collection.get("Members", ()):
                name = member.get("@odata.id") if isinstance(member, Mapping) else None
                if isinstance(name, str):
                    names[name] = None
                    if "Version" in member:
                        whole[name] = member
            after = collection.get("Members@odata.nextLink")
            following = after if isinstance(after, str) and after != following else None
        return list(names)[:MEMBERS], whole

    def _systems(self) -> Iterator[Mapping[str, Any]]:
        """Systems of the host first: a GB200 tray lists its GPU baseboard as one more."""
        link = _link(self._root, "Systems")
        if link is None:
            return
        listed = [one.get("@odata.id") for one in self._get(link).get("Members", ()) if isinstance(one, Mapping)]
        names = [name for name in listed if isinstance(name, str)]
        for name in sorted(names, key=lambda name: "HGX" in name or "Bluefield" in name):
            yield self._get(name)


def _link(payload: Mapping[str, Any], key: str) -> str | None:
    value = payload.get(key)
    found = value.get("@odata.id") if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else None
