"""Ways to run one script on many nodes: our SSH client (`ssh`), the system's ssh (`openssh`), scripted answers.

May import: `inventory`, `lockstep.base`; paramiko in `ssh` and `ssh_keys` only.
"""
