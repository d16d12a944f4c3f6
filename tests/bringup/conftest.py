"""Real sshd processes and badly behaved hosts on loopback, for tests of reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bringup import servers


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> servers.Keys:
    """A user key and two host keys, made once."""
    return servers.make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def sshd(keys: servers.Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Sshd]:
    """One sshd that answers on every loopback address of its port."""
    with servers.sshd(keys, tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def bad_hosts(tmp_path: Path) -> Iterator[servers.BadHosts]:
    """Hosts that hang, close and refuse."""
    with servers.bad_hosts() as hosts:
        yield hosts
