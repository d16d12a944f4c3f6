"""Server-side dry runs of every component; nothing is kept but the namespace that others stand in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from inventory import model
from lockstep.base import programs
from manifests import render

if TYPE_CHECKING:
    from lab.control_plane_testing import Plane

pytestmark = pytest.mark.cluster


def _rack_fleet(path: Path) -> model.Fleet:
    sku = model.SkuFile.model_validate(
        {"sku": "gb200", "accelerator": "NVIDIA GB200", "gpus": {}, "vendor": "nvidia", "nvlink": "rack"}
    )
    pool = model.Pool(
        name="racks", sku=sku, os="os", pinset="pinset", sources=(), disruption=model.Disruption(), nodes=()
    )
    return model.Fleet("racks", model.Ssh(), (), (pool,), path)


def test_every_component_of_a_rack_fleet_passes_admission(plane: Plane, tmp_path: Path) -> None:
    rendered = render.components(_rack_fleet(tmp_path))
    assert "placement-ledger" in rendered
    plane.apply([obj for obj in rendered["lockstep"] if obj["kind"] == "Namespace"])
    items = [obj for found in rendered.values() for obj in found]
    path = tmp_path / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubectl = [str(programs.find("kubectl")), "--kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(
        [*kubectl, "apply", "--dry-run=server", "-f", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(server dry run)") == len(items)
    assert "domainledgers.placement.lockstep.dev" in done.stdout
