"""The fleet in a box: real sshd, apt, reboots and a Kubernetes control plane on one machine, no GPU.

May import anything below stacks; nothing but lockstep.cli, tests and bench imports it.
Import the modules, not objects from here: ``from lab import labs, nodes``.
"""
