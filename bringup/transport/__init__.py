"""Ways to run one script on many nodes: SSH (`ssh`, paramiko alone), scripted answers (`fake`), and what both need.

May import: `inventory`, `lockstep.base`; paramiko in `ssh` only.
"""
