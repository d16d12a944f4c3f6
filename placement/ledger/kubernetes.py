"""The ledger's store in a cluster: one custom resource per NVLink domain, compare-and-swap on resourceVersion."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any, Final, cast

import httpx2
from lightkube import codecs
from lightkube.core.async_client import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource

from lockstep.base import documents, errors, issues
from placement.ledger.records import Grant, Hold, NodeGrant, Record, State
from placement.ledger.stores import Conflict, Versioned

__all__ = ["CRD", "Kubernetes", "definition", "object_name"]

CRD: Final = Path(__file__).with_name("crd.yaml")
DomainLedger = create_global_resource("placement.lockstep.dev", "v1alpha1", "DomainLedger", "domainledgers")
_NEVER_WRITTEN = ""
"""Version of a record that has no object yet."""


def definition() -> Any:
    """The CustomResourceDefinition, ready to apply."""
    report = issues.Report()
    document = documents.load(CRD, report, shown=CRD.name)
    report.raise_if_errors(CRD.name)
    assert document is not None  # noqa: S101 - the report had an error otherwise
    return codecs.from_dict(document.data)


def object_name(domain: str) -> str:
    """Name of a domain's object: readable, and unique by a digest since domains need not be DNS names."""
    readable = re.sub(r"[^a-z0-9]+", "-", domain.lower()).strip("-")[:48] or "domain"
    return f"{readable}-{hashlib.sha256(domain.encode()).hexdigest()[:10]}"


class Kubernetes:
    """See `stores.Store`. The client's credentials need get, list, create and update on domainledgers."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def read(self, domain: str) -> Versioned:
        """See `stores.Store`. Raises `errors.EngineError` when the API does not answer."""
        try:
            found = await self._client.get(DomainLedger, name=object_name(domain))
        except ApiError as error:
            if error.status.code == 404:
                return Record(domain), _NEVER_WRITTEN
            raise _failed(error) from error
        except httpx2.HTTPError as error:
            raise _failed(error) from error
        record = _record(cast("dict[str, Any]", found["spec"]))
        if record.domain != domain:
            raise errors.EngineError(f"object {object_name(domain)} holds domain {record.domain}", place=domain)
        assert found.metadata is not None  # noqa: S101 - the API always gives it
        return record, str(found.metadata.resourceVersion)

    async def replace(self, record: Record, version: str) -> Versioned:
        """See `stores.Store`. Raises `errors.EngineError` when the API does not answer or refuses the object.

        After such an error the write may have happened: read again. An unbound hold that
        came about that way ends by its deadline.
        """
        body = DomainLedger(metadata=_metadata(record, version), spec=_spec(record))
        try:
            if version == _NEVER_WRITTEN:
                written = await self._client.create(body)
            else:
                written = await self._client.replace(body)
        except ApiError as error:
            if error.status.code in (404, 409):
                raise Conflict(f"domain {record.domain} was changed by another planner", place=version) from error
            raise _failed(error) from error
        except httpx2.HTTPError as error:
            raise _failed(error) from error
        assert written.metadata is not None  # noqa: S101 - the API always gives it
        return record, str(written.metadata.resourceVersion)

    async def domains(self) -> list[str]:
        """See `stores.Store`."""
        try:
            return sorted([str(item["spec"]["domain"]) async for item in self._client.list(DomainLedger)])
        except (ApiError, httpx2.HTTPError) as error:
            raise _failed(error) from error


def _failed(error: Exception) -> errors.EngineError:
    return errors.EngineError(f"Kubernetes API: {error}", place="ledger")


def _metadata(record: Record, version: str) -> Any:
    from lightkube.models.meta_v1 import ObjectMeta

    return ObjectMeta(name=object_name(record.domain), resourceVersion=version or None)


def _spec(record: Record) -> dict[str, Any]:
    return {
        "domain": record.domain,
        "epoch": record.epoch,
        "holds": [
            {
                "claim": hold.claim,
                "epoch": hold.epoch,
                "owner": hold.owner,
                "state": hold.state.value,
                "deadline": hold.deadline,
                "lead": hold.lead,
                "domains": list(hold.domains),
                "nodes": [_node(node) for node in hold.nodes],
            }
            for hold in record.holds.values()
        ],
    }


def _node(node: NodeGrant) -> dict[str, Any]:
    return {
        "node": node.node,
        "cpu": node.cpu,
        "memory": node.memory,
        "nics": node.nics,
        "channel": node.channel,
        "tenant": node.tenant,
        "exclusive": node.exclusive,
        "sole": node.sole,
        "grants": [dataclasses.asdict(grant) for grant in node.grants],
    }


def _record(spec: dict[str, Any]) -> Record:
    holds = {}
    for item in spec["holds"]:
        nodes = tuple(
            NodeGrant(
                node["node"],
                tuple(Grant(**grant) for grant in node.get("grants", [])),
                node.get("cpu", 0),
                node.get("memory", 0),
                node.get("nics", 0),
                node.get("channel", False),
                node.get("tenant", ""),
                node.get("exclusive", False),
                node.get("sole", False),
            )
            for node in item["nodes"]
        )
        holds[item["claim"]] = Hold(
            item["claim"],
            item["epoch"],
            item["owner"],
            State(item["state"]),
            float(item["deadline"]),
            nodes,
            tuple(item["domains"]),
            item["lead"],
        )
    return Record(spec["domain"], spec["epoch"], holds)
