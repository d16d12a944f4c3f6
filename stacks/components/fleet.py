"""The machines of a fleet as resources: one `NodePool` per pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from inventory import model
from stacks import pools

__all__ = ["FleetComponent", "NodePool"]


class NodePool(pulumi.CustomResource):
    """One pool, served by the plugin beside this program (stacks/provider).

    Output ``skew``: node → coordinate or word → text, only what deviates.
    """

    skew: pulumi.Output[dict[str, dict[str, str]]]

    def __init__(self, name: str, inputs: Mapping[str, object], opts: pulumi.ResourceOptions | None = None) -> None:
        """``inputs`` as `stacks.pools.inputs` makes them."""
        versioned = pulumi.ResourceOptions.merge(pulumi.ResourceOptions(version=pools.VERSION), opts)
        super().__init__(pools.TYPE, name, {**inputs, "skew": None}, versioned)


class FleetComponent(pulumi.ComponentResource):
    """All pools of a fleet, named ``FLEET-POOL``.

    ``inputs`` gives each pool's inputs by pool name. Pools wait for ``after``: what nodes
    join (roles, device classes) must stand before they do.
    """

    def __init__(
        self,
        fleet: model.Fleet,
        inputs: Mapping[str, Mapping[str, object]],
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("lockstep:fleet:Fleet", str(fleet.name), None, opts)
        self.pools = {
            name: NodePool(
                f"{fleet.name}-{name}", values, pulumi.ResourceOptions(parent=self, depends_on=list(after) or None)
            )
            for name, values in inputs.items()
        }
        self.register_outputs({})
