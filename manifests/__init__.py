"""(fleet) → Kubernetes objects of the whole cluster, as plain dicts by component. Contacts nothing.

What is per node is the work of `join` and `admit` (bringup), so that nothing here grows with the fleet.
May import: `inventory`, `pinsets`, `placement`, `lockstep.base`; jinja2 lives here alone.
"""

from manifests.retention import retained

__all__ = ["retained"]
