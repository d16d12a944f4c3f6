"""Which devices and nodes may take work: Xid and DCGM events by policy, and the fleet's alarm.

Policy is data (`policy.yaml`). May import: `placement.topology`, `lockstep.base`.
"""
