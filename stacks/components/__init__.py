"""Pulumi components: one for the machines, one for the cluster's shared objects."""
