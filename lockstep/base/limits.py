"""Every timeout and limit, with its reason and its relation to the others. Seconds unless named otherwise."""

from __future__ import annotations

from typing import Final

NODES_PER_PATTERN: Final = 100_000
"""Largest host range: the scale up to which preview is measured; beyond it a typing error is likelier than a fleet."""

SSH_CONNECT_SECONDS: Final = 5.0
"""TCP connect. A black hole would otherwise hold its slot for 130 s (kernel default)."""
SSH_LOGIN_SECONDS: Final = 10.0
"""Banner, key exchange and authentication together, each bounded by this and all by the host deadline."""
HOST_DEADLINE_SECONDS: Final = 30.0
"""One hard deadline per host from connect to last byte; closes the socket. Above script + login."""
SCRIPT_SECONDS: Final = 20.0
"""The probe's own limit on the node; below the host deadline so that partial output still comes back."""
COMMAND_SECONDS: Final = 8.0
"""One command of the probe. nvidia-smi without persistence mode takes 2–4 s on eight GPUs."""
OUTPUT_BYTES_PER_COMMAND: Final = 256 * 1024
"""`nvidia-smi -q -x` of eight GPUs is 96 kB; truncated output is Unreadable, never parsed."""
OUTPUT_BYTES_PER_NODE: Final = 2 * 1024 * 1024
"""All of one node's answer; a node that floods is Unreadable."""
SWEEP_CONCURRENCY: Final = 100
"""Threads of a sweep. paramiko at 1,000 threads loses a third of the hosts; 100–200 serve 10,000."""
SECOND_PASS_CONCURRENCY: Final = 32
"""Hosts tried again after the first pass, with `HOST_DEADLINE_SECONDS` doubled."""
SNAPSHOTS_KEPT: Final = 50
"""Stored snapshots per fleet; the oldest go. 10,000 nodes in step take well under a megabyte each."""

FENCE_SHARE: Final = 0.02
"""Share of a pool's GPU nodes that one run may fence; one NVLink domain if that is more."""
COMMON_CAUSE_SHARE: Final = 0.10
"""Same coordinate and value, new on more than this share and `COMMON_CAUSE_NODES`: pin, parser or image."""
COMMON_CAUSE_NODES: Final = 3
DISK_FULL_PERCENT: Final = 98
"""From this share of blocks or inodes in use on a file system, writes fail or are about to."""
MAJORITY_SHARE: Final = 0.80
"""Without a fleet file, what fewer than this share of the nodes agree on is no baseline: either side may be right."""
SHRINK_SHARE: Final = 0.05
"""A pool that loses more than this share and at least `SHRINK_NODES` nodes needs `--shrink N`."""
SHRINK_NODES: Final = 2

LEASE_SECONDS: Final = 120.0
"""Life of a node lease without renewal; a dead owner on this host is replaced at once."""
REBOOT_SECONDS: Final = 900.0
"""Until a rebooted GPU server answers again; DGX H100 takes 6–9 minutes."""
WAVE_NODES: Final = 200
"""Largest wave: one Ansible controller does 12–20 hosts a second and task; beyond it a wave only gets longer."""
ANSIBLE_FORKS: Final = 50
"""Parallel hosts of one Ansible run; 100 gave nothing, the controller is the limit."""
ANSIBLE_TASK_SECONDS: Final = 600
"""One task on one host: an apt install of a driver set with a slow mirror stays below."""
ANSIBLE_RUN_SECONDS: Final = 1800
"""One Ansible run of one wave, reboots included; above `REBOOT_SECONDS` and the tasks before it."""
NODE_READY_SECONDS: Final = 120.0
"""Until a joined Node is registered and Ready; a kubelet's first status comes within 10 s."""
VACATE_POLL_SECONDS: Final = 5.0
"""Between two looks at a node that is to become vacant."""
BMC_SECONDS: Final = 120.0
"""One power command; slow BMCs answer in tens of seconds."""
BMC_MEMORY_SECONDS: Final = 600.0
"""What a BMC said of its firmware is not asked again by one run for that long, within one boot of its host."""
POWER_OFF_SECONDS: Final = 180.0
"""Until a machine that was told to is proved off."""
REIMAGE_SECONDS: Final = 1800.0
"""Until the re-image command has ended and printed the new host key."""
