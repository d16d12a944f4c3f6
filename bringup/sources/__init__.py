"""Facts that somebody else has read already: the Kubernetes API, a Prometheus; and the hosts that Slurm knows.

Nothing is run on a node. Each source tells a few coordinates; whatever else a lock pins is `not offered` there, which
is unreadable and never absent.
"""
