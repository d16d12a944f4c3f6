"""What holds of every set of rendered objects: a tuple of small functions, each yields sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from lockstep.base import names

__all__ = ["CHECKS", "Check", "run"]

Objects = Mapping[str, Sequence[Mapping[str, Any]]]
"""Component → objects."""
Check = Callable[[Objects], Iterator[str]]

CLUSTER_WIDE: Final = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "DeviceClass",
        "Namespace",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)
NAMESPACED: Final = frozenset({"ConfigMap", "DaemonSet", "Deployment", "Role", "RoleBinding", "ServiceAccount"})
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\beyJ[\w-]{10,}\.[\w-]{10,}\.|\"(?:password|token|secret[-_]?key)\": \"[^\"]",
    re.IGNORECASE,
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def run(objects: Objects) -> Iterator[str]:
    """Every sentence of every check."""
    for check in CHECKS:
        yield from check(objects)


def _each(objects: Objects) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for component, found in objects.items():
        for obj in found:
            yield f"{component}: {obj.get('kind')} {obj.get('metadata', {}).get('name')}", obj


def is_complete(objects: Objects) -> Iterator[str]:
    """apiVersion, kind and a name; no status, which is the cluster's to write."""
    for place, obj in _each(objects):
        for key in ("apiVersion", "kind"):
            if not isinstance(obj.get(key), str):
                yield f"{place} has no {key}"
        if "status" in obj:
            yield f"{place} has a status"


def has_a_valid_name(objects: Objects) -> Iterator[str]:
    """An RFC 1123 subdomain; a namespace an RFC 1123 label."""
    for place, obj in _each(objects):
        name = obj.get("metadata", {}).get("name")
        valid = names.is_dns_label if obj.get("kind") == "Namespace" else names.is_node_name
        if not isinstance(name, str) or not valid(name):
            yield f"{place} has no valid name"


def has_valid_labels(objects: Objects) -> Iterator[str]:
    """Values that the API takes."""
    for place, obj in _each(objects):
        for key, value in (obj.get("metadata", {}).get("labels") or {}).items():
            if not isinstance(value, str) or _LABEL_VALUE.fullmatch(value) is None:
                yield f"{place} has the label {key} with a value that the API refuses: {value!r}"


def stands_in_its_namespace(objects: Objects) -> Iterator[str]:
    """A namespaced object names a namespace that is rendered too, a cluster-wide one names none."""
    rendered = {obj["metadata"]["name"] for _, obj in _each(objects) if obj.get("kind") == "Namespace"}
    for place, obj in _each(objects):
        namespace = obj.get("metadata", {}).get("namespace")
        if obj.get("kind") in CLUSTER_WIDE:
            if namespace is not None:
                yield f"{place} is cluster-wide and names the namespace {namespace}"
        elif obj.get("kind") not in NAMESPACED:
            yield f"{place} is of a kind that the checks do not know"
        elif namespace not in rendered:
            yield f"{place} stands in the namespace {namespace}, which no component makes"


def is_there_once(objects: Objects) -> Iterator[str]:
    """No object twice, whichever component renders it."""
    seen: dict[tuple[object, ...], str] = {}
    for place, obj in _each(objects):
        metadata = obj.get("metadata", {})
        key = (obj.get("apiVersion"), obj.get("kind"), metadata.get("namespace"), metadata.get("name"))
        if key in seen:
            yield f"{place} is rendered twice, by {seen[key].split(':')[0]} too"
        seen.setdefault(key, place)


def holds_no_secret(objects: Objects) -> Iterator[str]:
    """Pulumi keeps what we render in its state: no Secret, no key, no token."""
    for place, obj in _each(objects):
        if obj.get("kind") == "Secret" or _SECRET.search(json.dumps(obj)):
            yield f"{place} holds a secret"


def binds_what_exists(objects: Objects) -> Iterator[str]:
    """Roles, accounts and policies that a binding names are rendered too."""
    known = {
        (obj.get("kind"), obj.get("metadata", {}).get("namespace"), obj.get("metadata", {}).get("name"))
        for _, obj in _each(objects)
    }
    for place, obj in _each(objects):
        wanted = [(one.get("kind"), one.get("namespace"), one.get("name")) for one in obj.get("subjects", ())]
        if (role := obj.get("roleRef")) is not None:
            wanted.append((role.get("kind"), None, role.get("name")))
        if obj.get("kind") == "ValidatingAdmissionPolicyBinding":
            wanted.append(("ValidatingAdmissionPolicy", None, obj["spec"].get("policyName")))
        for missing in wanted:
            if missing not in known:
                yield f"{place} names {missing[0]} {missing[2]}, which no component makes"


CHECKS: Final[tuple[Check, ...]] = (
    is_complete,
    has_a_valid_name,
    has_valid_labels,
    stands_in_its_namespace,
    is_there_once,
    holds_no_secret,
    binds_what_exists,
)
