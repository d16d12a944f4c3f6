"""Cluster-wide objects: one provider, one group of manifests per component.

What is per node (taints, labels, admission) is the work of `join` and `admit` through the
Kubernetes API, so that the state does not grow with the fleet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pulumi
from pulumi_kubernetes import Provider
from pulumi_kubernetes.yaml import v2

import manifests

__all__ = ["ClusterComponent"]

NEVER_REPLACED = ["clusterIdentifier"]
"""A changed identifier would have the engine replace the provider, and with it every object."""


class ClusterComponent(pulumi.ComponentResource):
    """The objects of ``components`` (component → objects, applied in that order) in the cluster of ``kubeconfig``.

    ``identifier`` names the cluster for good: a kubeconfig that moves replaces nothing.
    """

    def __init__(
        self,
        name: str,
        kubeconfig: Path,
        identifier: str,
        components: Mapping[str, Sequence[Mapping[str, object]]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("lockstep:cluster:Cluster", name, None, opts)
        self.provider = Provider(
            name,
            # The path, never the content: the content holds credentials and would lie in the state.
            kubeconfig=str(kubeconfig),
            cluster_identifier=identifier,
            enable_config_map_mutable=True,
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=NEVER_REPLACED),
        )
        self.groups: list[pulumi.Resource] = []
        for component, objects in components.items():
            group = v2.ConfigGroup(
                f"{name}-{component}",
                objs=[_taken_over(one) for one in objects],
                opts=pulumi.ResourceOptions(
                    parent=self,
                    provider=self.provider,
                    depends_on=self.groups[-1:],
                    # The group's children are registered by the provider's process, so what must hold for
                    # them is said here, for each of them, as they come by.
                    transforms=[_retain],
                ),
            )
            self.groups.append(group)
        self.register_outputs({})


def _taken_over(obj: Mapping[str, object]) -> dict[str, object]:
    """The object with the mark by which its apply wins over an earlier one of ours.

    Objects that were kept by a destroy, or that another state of ours made (a fresh clone without one), still belong
    to that state's field manager; what the API server has defaulted in them since would count as a conflict.
    """
    metadata = dict(cast("Mapping[str, object]", obj.get("metadata", {})))
    annotations = dict(cast("Mapping[str, object]", metadata.get("annotations", {})))
    return {**obj, "metadata": {**metadata, "annotations": {**annotations, "pulumi.com/patchForce": "true"}}}


def _retain(arguments: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Objects whose deletion would delete other people's objects stay when the stack lets go of them."""
    # The group itself passes too, and has no kind of its own.
    if not isinstance(arguments.props, Mapping) or "kind" not in arguments.props:
        return None
    if not manifests.retained(arguments.props):
        return None
    kept = pulumi.ResourceOptions.merge(arguments.opts, pulumi.ResourceOptions(retain_on_delete=True))
    return pulumi.ResourceTransformResult(props=arguments.props, opts=kept)
