"""A real engine on a copy of the checkout, with plain `pulumi` and no shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.base import programs, settings
from stacks import exports

FLEET = """\
fleet: toy
ssh: {user: root, port: 2222}
pools:
  - name: p
    sku: lab-gb200
    os: debian-12-amd64
    pinset: 2026-09-lab-gb200
    nodes:
      p-[1-3]: {slot: "u[1-3]", address: "127.90.199.[1-3]", domain: r1}
  - name: q
    sku: lab-gb200
    os: debian-12-amd64
    pinset: 2026-09-lab-gb200
    nodes:
      q-[1-2]: {slot: "v[1-2]", address: "127.90.199.[11-12]", domain: r2}
"""


@dataclass
class Engine:
    """Plain `pulumi` in ``checkout``, state in ``folder``, machines scripted by files there."""

    checkout: Path
    folder: Path
    stack: str = "toy"
    kubeconfig: Path | None = None

    @classmethod
    def scripted(cls, checkout: Path, folder: Path, kubeconfig: Path | None = None) -> Engine:
        """With the scripted plugin, a fleet of two pools in step, and its stack."""
        _script(checkout)
        found = cls.plain(checkout, folder, kubeconfig)
        found.deviate({})
        return found

    @classmethod
    def plain(cls, checkout: Path, folder: Path, kubeconfig: Path | None = None) -> Engine:
        """With the real plugin."""
        folder.mkdir(exist_ok=True)
        (checkout / "inventory" / "fleets" / "toy.yaml").write_text(FLEET)
        found = cls(checkout, folder, kubeconfig=kubeconfig)
        found.run("stack", "init", "toy")
        return found

    def copy(self, to: Path) -> Engine:
        """A scripted engine in the state of this one, for one test to work on."""
        checkout, folder = to / "check out", to / "engine"
        shutil.copytree(self.checkout, checkout, symlinks=True)
        shutil.copytree(self.folder, folder)
        _script(checkout)
        return Engine(checkout, folder, kubeconfig=self.kubeconfig)

    def deviate(self, nodes: Mapping[str, Mapping[str, str]]) -> None:
        """What the next reading finds."""
        (self.folder / "deviations.json").write_text(json.dumps(nodes))

    def end_with(self, skew: Mapping[str, Any], failures: list[str], warnings: list[str]) -> None:
        """How acts end from now on."""
        (self.folder / "outcome.json").write_text(json.dumps([skew, failures, warnings]))

    @property
    def acts(self) -> list[str]:
        """The pools acted on so far, in order."""
        path = self.folder / "acts"
        return path.read_text().split() if path.exists() else []

    def environment(self, **more: str) -> dict[str, str]:
        """What `lockstep env` would export, and ``more``."""
        where = settings.load({**os.environ, "LOCKSTEP_ROOT": str(self.checkout)})
        cluster = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig is not None else {}
        place = exports.Place(self.folder / "state", cluster, fixed=True)
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "LOCKSTEP_", "KUBE"))
        }
        values = exports.variables(place, where, own)
        path = os.pathsep.join([str(programs.find("pulumi").parent), values["PATH"]])
        return {**own, **values, "PATH": path, "SCRIPT": str(self.folder), **more}

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start `pulumi WORDS -s STACK` from a folder inside the checkout."""
        return subprocess.Popen(
            [programs.find("pulumi"), "--non-interactive", "--color", "never", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.checkout / "inventory",
            env=self.environment(PULUMI_STACK=self.stack, **more),
        )

    def run(self, *words: str, fails: bool = False, **more: str) -> str:
        """Run it to its end; its output. The exit code must be as ``fails`` says."""
        process = self.start(*words, **more)
        output, _ = process.communicate(timeout=300)
        assert (process.returncode != 0) is fails, output
        return output

    def preview(self, *words: str, **more: str) -> str:
        """`pulumi preview --diff`."""
        return self.run("preview", "--diff", *words, **more)

    def up(self, *words: str, fails: bool = False, **more: str) -> str:
        """`pulumi up --yes --skip-preview`."""
        return self.run("up", "--yes", "--skip-preview", *words, fails=fails, **more)

    def resources(self) -> list[dict[str, Any]]:
        """The resources in the state."""
        found: list[dict[str, Any]] = json.loads(self.run("stack", "export"))["deployment"].get("resources", [])
        return found

    def pools(self) -> dict[str, dict[str, Any]]:
        """Pool name → its resource in the state."""
        return {one["inputs"]["pool"]: one for one in self.resources() if one["type"] == "lockstep:fleet:NodePool"}


def _script(checkout: Path) -> None:
    """Have the engine start the scripted plugin in this checkout."""
    root = Path(__file__).parents[2]
    lines = ["#!/bin/sh", f"cd '{checkout}'", f"export PYTHONPATH='{root}' LOCKSTEP_ROOT='{checkout}'"]
    wrapper = checkout / "stacks" / "plugin" / "pulumi-resource-lockstep"
    wrapper.write_text("\n".join([*lines, f"exec '{sys.executable}' -m tests.stacks.scripted_plugin", ""]))
