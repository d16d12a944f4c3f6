"""Facts from a Prometheus that scrapes the usual exporters: labels of info series, never measured values.

DCGM exporter (driver), node exporter (kernel, OS, BIOS, NICs), kube-state-metrics (kubelet, runtime). A label is as old
as its last scrape, so every series is asked for by its timestamp, and one older than five minutes counts as unreadable.
"""

from __future__ import annotations

import http.client
import json
import math
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from bringup.sources import observed
from lockstep.base import errors
from lockstep.base.names import NodeName
from lockstep.base.plaintext import is_host_name
from pinsets.facts import Coordinate, Fact, Layer, NodeFacts, Snapshot, Unreadable

__all__ = ["QUERIES", "STALE_SECONDS", "facts_of", "read"]

STALE_SECONDS: Final = 300.0
"""Prometheus itself forgets a series after five minutes without a sample."""
ANSWER_SECONDS: Final = 60.0
ANSWER_BYTES: Final = 256 * 1024 * 1024

Series = tuple[Mapping[str, str], float]
"""(labels, Unix time of the newest sample)."""
Label = Callable[[Mapping[str, str]], str]

# Series → what its labels tell. Names: dcgm-exporter, prometheus/node_exporter (collectors uname, os, dmi, infiniband),
# kubernetes/kube-state-metrics (kube_node_info).
QUERIES: Final[Mapping[str, tuple[tuple[str, Layer, Label], ...]]] = {
    "DCGM_FI_DEV_GPU_TEMP": (("driver", Layer.RUNNING, lambda labels: labels.get("DCGM_FI_DRIVER_VERSION", "")),),
    "node_uname_info": (("kernel", Layer.RUNNING, lambda labels: labels.get("release", "")),),
    "node_os_info": (
        ("os", Layer.RUNNING, lambda labels: f"{labels.get('id', '')} {labels.get('version_id', '')}".strip()),
    ),
    "node_dmi_info": (("firmware.bios", Layer.RUNNING, lambda labels: labels.get("bios_version", "")),),
    "kube_node_info": (
        ("kernel", Layer.RUNNING, lambda labels: labels.get("kernel_version", "")),
        ("kubelet", Layer.ONDISK, lambda labels: labels.get("kubelet_version", "")),
        ("containerd", Layer.RUNNING, lambda labels: _containerd(labels.get("container_runtime_version", ""))),
    ),
}
_NODE_LABELS: Final = ("node", "nodename", "Hostname", "hostname", "instance")
"""Where a node's name stands, best first; ``instance`` is the scraped address, and it may be a pod's."""


def read(url: str, names: Collection[str] | None = None) -> Snapshot:
    """Facts of ``names``, None: of every node that any series names.

    Raises `errors.InputError` for an address that cannot be one, `errors.NotMeasuredError` when
    it does not answer or no series of QUERIES is there.
    """
    if "@" in url:
        # It would stand in messages and reports as it was given.
        raise errors.InputError("a URL must not carry a password", place="--prometheus", hint="http://prometheus:9090")
    if not _is_url(url):
        raise errors.InputError(f"{url!r} is no http or https URL", place="--prometheus", hint="http://prometheus:9090")
    series = {name: tuple(_ask(url.rstrip("/"), f"timestamp({name})")) for name in QUERIES}
    if not any(series.values()):
        raise errors.NotMeasuredError(
            f"it has none of {', '.join(QUERIES)}", place=url, hint="scrape the DCGM exporter and the node exporter"
        )
    return facts_of(series, names, time.time())


def _is_url(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets around what is no address, a port that is no number
        return False


def facts_of(series: Mapping[str, Collection[Series]], names: Collection[str] | None, now: float) -> Snapshot:
    """Series by name → a snapshot. Pure. Nodes that no series names are unreachable."""
    known = _nodes_by_address(series.get("node_uname_info", ()))
    found: dict[NodeName, dict[Coordinate, Fact]] = {}
    for name, entries in QUERIES.items():
        for labels, sampled in series.get(name, ()):
            node = _node(labels, known)
            if node is None:
                continue
            facts = found.setdefault(node, {})
            for component, layer, label in entries:
                value: str | Unreadable = label(labels)
                if not math.isfinite(sampled):
                    value = Unreadable("nobody knows when it was scraped")
                elif now - sampled > STALE_SECONDS:
                    value = Unreadable(f"last scraped {round((now - sampled) / 60)} min ago")
                if value:
                    _keep(facts, observed.fact(component, layer, value, f"prometheus:{name}"))
    wanted = sorted(found) if names is None else [NodeName(name) for name in names]
    silent = "prometheus: no series names it"
    return Snapshot(
        now,
        {
            name: NodeFacts(name, now, found[name]) if name in found else NodeFacts(name, now, unreachable=silent)
            for name in wanted
        },
    )


def _keep(facts: dict[Coordinate, Fact], fact: Fact) -> None:
    """One value; two different ones (eight GPUs, two exporters) are known by nobody."""
    before = facts.get(fact.coordinate)
    if before is None or (isinstance(before.observation, Unreadable) and "two values" not in str(before.observation)):
        facts[fact.coordinate] = fact
    elif before.observation != fact.observation and not isinstance(fact.observation, Unreadable):
        both = ", ".join(sorted({str(before.observation), str(fact.observation)}))
        facts[fact.coordinate] = Fact(fact.coordinate, Unreadable(f"two values at once: {both}"), fact.source)


def _nodes_by_address(series: Collection[Series]) -> dict[str, str]:
    """Scraped address without its port → the node's own name, by the exporter that tells both."""
    return {
        _host(labels["instance"]): labels["nodename"] for labels, _ in series if {"instance", "nodename"} <= {*labels}
    }


def _node(labels: Mapping[str, str], known: Mapping[str, str]) -> NodeName | None:
    for label in _NODE_LABELS:
        text = labels.get(label, "")
        if label == "instance":
            text = known.get(_host(text), _host(text))
        if text and is_host_name(text):
            return NodeName(text)
    return None


def _host(instance: str) -> str:
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else instance


def _containerd(text: str) -> str:
    runtime, _, version = text.partition("://")
    return version if runtime == "containerd" else ""


def _ask(url: str, query: str) -> Iterator[Series]:
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        # Not the environment's proxies for what stands in the same cluster; certificates are verified.
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
        with opener.open(address, timeout=ANSWER_SECONDS) as answer:
            value: Any = json.loads(answer.read(ANSWER_BYTES))
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise errors.NotMeasuredError(
            f"Prometheus does not answer: {reason}", place=url, hint="give the address of its HTTP API"
        ) from error
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, dict) or value.get("status") != "success" or not isinstance(data.get("result"), list):
        raise errors.NotMeasuredError("what answers there is no Prometheus", place=url)
    for entry in data["result"]:
        try:
            labels = {str(key): str(text) for key, text in entry["metric"].items()}
            yield labels, float(entry["value"][1])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            continue
