"""A pinset that is being made from somebody else's list: values with their source, and what had to be left out.

`imports_*` and `golden` fill drafts, `text` writes one as a catalogue file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lockstep.base.names import ComponentName
from pinsets import components, lint
from pinsets.facts import Layer
from pinsets.model import Pin, Scope

__all__ = ["Draft", "LeftOut", "quoted", "text"]

_SCOPES: Final[Mapping[str, Scope]] = {
    **dict.fromkeys(
        ("driver", "fabricmanager", "cuda", "cudnn", "nccl", "nccl.plugins", "aws-ofi-nccl", "nccl-gib", "rccl"),
        Scope.JOB,
    ),
    **dict.fromkeys(
        ("hpcx", "ucx", "libfabric", "rdma-core", "ofed", "doca", "rocm", "amdgpu", "firmware.nic", "settings.env"),
        Scope.JOB,
    ),
    **dict.fromkeys(("imex", "firmware.gpu", "firmware.nvlink", "firmware.bundle"), Scope.DOMAIN),
}
"""Who must agree on what is imported; everything else is a node's own matter. A reviewer may change it."""

_PLAIN: Final = re.compile(r"[A-Za-z][\w./+~-]*|\d+(\.\d+){2,}[\w.+~-]*")
"""Texts that YAML reads as texts without quotes; all others get quotes."""
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n", "none"})


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of the list that became no pin."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(slots=True)
class Draft:
    """What was found so far."""

    source: str
    """Where the list was published, or which node was read."""
    pins: dict[str, Pin] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def add(
        self,
        component: str,
        version: str,
        source: str,
        *,
        package: str | None = None,
        layers: Sequence[Layer] | None = None,
        instances: Mapping[str, str] | None = None,
    ) -> None:
        """Pin ``component``; a value that is no exact version is left out with the reason, as is a second one.

        ``instances`` gives a version slot by slot, in place of ``version``.
        """
        texts = (instances or {"": version}).values()
        reason = next((why for text in texts if (why := lint.exact_or_reason(component, text)) is not None), None)
        if reason is not None:
            self.leave(f"{component} {version}", f"{reason} ({source})")
            return
        known = self.pins.get(component)
        if known is not None:
            if known.version != version:
                self.leave(f"{component} {version}", f"{known.version} stands there already ({source})")
            return
        given = tuple(layers) if layers is not None else None
        entry = components.load()[ComponentName(component)]
        self.pins[component] = Pin(
            version=version if not instances else None,
            instances=dict(instances or {}),
            package=package if package != version else None,
            layers=given if given != entry.layers else None,
            scope=_SCOPES.get(component, Scope.NODE),
            source=source,
        )

    def leave(self, what: str, why: str) -> None:
        """Note what became no pin."""
        self.left_out.append(LeftOut(what, why))


def text(draft: Draft, name: str, skus: Sequence[str], *, rules: Mapping[str, str] | None = None) -> str:
    """The draft as a file of the catalogue. What was left out stands in comments at its head.

    ``rules`` are those that it breaks and is kept against, with the reason.
    """
    lines = [f"# Left out of {_one_line(draft.source)}:"] if draft.left_out else []
    lines += [f"#   {_one_line(str(entry))}" for entry in draft.left_out]
    lines += [f"pinset: {_scalar(name)}", f"sku: [{', '.join(_scalar(sku) for sku in skus)}]"]
    lines.append(f"source: {_scalar(draft.source)}")
    if rules:
        lines.append("rules:")
        lines += [f"  {_scalar(rule)}: {_scalar(reason)}" for rule, reason in rules.items()]
    lines.append("pins:")
    order = {str(component): number for number, component in enumerate(components.load())}
    for component in sorted(draft.pins, key=lambda one: order.get(one, len(order))):
        lines.append(f"  {component}:")
        lines += [f"    {key}: {value}" for key, value in _fields(draft.pins[component])]
    if not draft.pins:
        lines[-1] = "pins: {}"
    return "\n".join(lines) + "\n"


def _fields(pin: Pin) -> list[tuple[str, str]]:
    found = [("version", _scalar(pin.version))] if pin.version is not None else []
    if pin.accept:
        found.append(("accept", f"[{', '.join(_scalar(one) for one in pin.accept)}]"))
    if pin.instances:
        slots = ", ".join(f"{_scalar(slot)}: {_scalar(value)}" for slot, value in pin.instances.items())
        found.append(("instances", f"{{{slots}}}"))
    if pin.package is not None:
        found.append(("package", _scalar(pin.package)))
    if pin.layers is not None:
        found.append(("layers", f"[{', '.join(layer.value for layer in pin.layers)}]"))
    if pin.scope is not Scope.NODE:
        found.append(("scope", pin.scope.value))
    if pin.source:
        found.append(("source", _scalar(pin.source)))
    return found


def _one_line(value: str) -> str:
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in value)).strip()


def _scalar(value: str) -> str:
    """A YAML scalar that reads back as this very text."""
    bare = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS
    return value if bare else quoted(value)


def quoted(value: str) -> str:
    """A text in YAML's double quotes, ASCII only; JSON's would spell what lies beyond 16 bits as a pair, which YAML
    refuses."""
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    number = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= number < 0x7F:
        return character
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
