"""`lockstep env`: what plain `pulumi` needs on a stack."""

from __future__ import annotations

import os

from lockstep.cli import options

__all__ = ["command"]


def command(fleet: options.FleetArgument) -> None:
    """Print the environment for plain `pulumi` on a fleet's stack, as `export` lines.

    The stack is made if it is missing. State lies in a local folder unless PULUMI_BACKEND_URL names another place; what
    you have set yourself (that, PULUMI_HOME, PULUMI_CONFIG_PASSPHRASE, LOCKSTEP_STATE, KUBECONFIG) is kept.

    \b
    Example:
      eval "$(lockstep env lab)"
      pulumi preview -s lab
      pulumi up -s lab --yes
    """
    # Late: `lockstep env --help` should not pay for the engine's SDK.
    from lockstep.cli import environments
    from stacks import automation, exports

    environment = environments.resolve(fleet)
    automation.ensure_stack(environment.stack, environment.where, environment.variables, environment.config)
    print(exports.shell(environment.variables, os.environ))
