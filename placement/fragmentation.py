"""FGD's fragmentation of a node: free GPU share that a random arriving task could not use.

Formula: "Beware of Fragmentation", USENIX ATC'23, as in its artifact
(hkust-adsl/kubernetes-scheduler-simulator): GPUs too small for a task count as
fragments; a node that cannot host the task at all is a fragment as a whole.
Memory takes no part in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.tasks import Workload, typical
from placement.topology import Ints, Topology

__all__ = ["Fragmentation"]


class Fragmentation:
    """F for many node states at once, for the typical kinds of one workload."""

    def __init__(self, topology: Topology, workload: Workload) -> None:
        tasks = typical(workload).frequencies
        shares = sorted({task.share for task in tasks if task.gpus})
        column = {share: index for index, share in enumerate(shares)}
        with_gpu = [task for task in tasks if task.gpus]
        self._shares = np.array(shares, dtype=np.int64)
        self._column = np.array([column[task.share] for task in with_gpu], dtype=np.int64)
        self._count = np.array([task.gpus for task in with_gpu], dtype=np.int64)
        self._cpu = np.array([task.cpu for task in with_gpu], dtype=np.int64)
        self._probability = np.array([tasks[task] for task in with_gpu])
        # CPU-only kinds count every free share as a fragment: a constant factor.
        self._always = sum(probability for task, probability in tasks.items() if not task.gpus)
        self._allowed = np.array(
            [[not task.models or model in task.models for task in with_gpu] for model in topology.models], dtype=bool
        ).reshape(len(topology.models), len(with_gpu))

    def of(self, gpu: Ints, cpu: Ints, model: Ints) -> NDArray[np.float64]:
        """(m,) expected fragment in thousandths of a GPU, for m states.

        ``gpu`` is (m, g) free thousandths per GPU, ``cpu`` (m,) free thousandths of a core,
        ``model`` (m,) the node's accelerator index.
        """
        total = gpu.sum(axis=1)
        enough = gpu[:, None, :] >= self._shares[:, None]
        usable = enough.sum(axis=2)
        fragment = total[:, None] - (enough * gpu[:, None, :]).sum(axis=2)
        fits = usable[:, self._column] >= self._count
        fits &= cpu[:, None] >= self._cpu
        fits &= self._allowed[model]
        lost = np.where(fits, fragment[:, self._column], total[:, None])
        result: NDArray[np.float64] = lost @ self._probability + self._always * total
        return result
