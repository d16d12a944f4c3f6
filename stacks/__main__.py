"""The program of every stack: the cluster's shared objects first, then the pools that join it."""

from __future__ import annotations

import pulumi
from pulumi import runtime

from lockstep.base import errors
from stacks import environments
from stacks.components import fleet

try:
    environment = environments.declared(pulumi.get_stack(), runtime.get_config_env())
except errors.LockstepError as error:
    raise pulumi.RunError(error.diagnostics()) from error

after: list[pulumi.Resource] = []
if environment.kubeconfig is not None:
    # Late: 0.5 s of imports that an environment without a cluster need not pay.
    from stacks.components import cluster

    after = [
        cluster.ClusterComponent(
            str(environment.fleet.name), environment.kubeconfig, environment.cluster, environment.components()
        )
    ]
fleet.FleetComponent(environment.fleet, environment.pools, after)
