"""Facts from BMCs over Redfish: one BMC (`bmc`), what its inventory means (`inventory`), many (`source`).

Firmware of trays, switches and boards can be read nowhere else, also when the host is off. BMCs are slow, list members
twice, keep old images beside new ones and say `Enabled` for both; every such trait is handled in `inventory`, by case.
"""
