"""Bare host → admitted node: SSH, probe, parsers, sweep and audit; consent, stages, waves, replacement.

Reading needs the base dependencies alone; Ansible, the cluster's client and the
journal are imported when an act begins. May import: `pinsets`,
`inventory`, `lockstep.base`; never `manifests`.
"""
