"""The probe in a short-lived privileged pod per node, for clusters whose nodes nobody reaches by SSH.

The pod runs the very script that SSH sends, in the node's own root, and prints its answer: `kubectl logs` gives what
`lockstep audit --from-dir` takes. Nothing is written on the node's disks, and the pod ends by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lockstep.base import errors, names
from lockstep.base.plaintext import visible

__all__ = ["COMMAND", "LABEL", "objects"]

LABEL: Final = "lockstep.dev/probe"
COMMAND: Final = ("chroot", "/host", "sh", "-c", 'printf "%s" "$LOCKSTEP_PROBE" | sh -s')
"""The script comes in the environment: nothing is mounted into the node's own tree."""
SECONDS: Final = 120
"""Longest life of a pod: far above the script's own limit, and an end where a node hangs."""
_ENVIRONMENT_BYTES: Final = 128 * 1024
"""Longest single string that Linux gives a process (MAX_ARG_STRLEN)."""


def objects(nodes: Sequence[str], script: str, *, image: str, namespace: str) -> list[dict[str, Any]]:
    """One namespace that may hold privileged pods, and one pod for each node, pinned to it and tolerating everything.

    ``image`` needs `chroot` and nothing else; name it by digest. Raises `errors.InputError` for node names that
    Kubernetes does not know, `errors.EngineError` for a script that no environment can hold.
    """
    wrong = [node for node in nodes if not names.is_node_name(node)]
    if wrong:
        raise errors.InputError(f"no node of Kubernetes is called {visible(wrong[0][:60])!r}", place="--node")
    # The name and the sign of equality stand in the same string.
    if len(script.encode()) >= _ENVIRONMENT_BYTES - 64:
        raise errors.EngineError(f"the probe is longer than {_ENVIRONMENT_BYTES} bytes", place="manifests")
    return [_namespace(namespace), *(_pod(node, script, image, namespace) for node in nodes)]


def _namespace(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/part-of": "lockstep", "pod-security.kubernetes.io/enforce": "privileged"},
        },
    }


def _pod(node: str, script: str, image: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"probe-{node}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "lockstep", LABEL: "node"},
        },
        "spec": {
            # Straight to the node: a full, cordoned or tainted one is read too, and no scheduler is asked.
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": SECONDS,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostPID": True,
            "hostNetwork": True,
            "containers": [
                {
                    "name": "probe",
                    "image": image,
                    "command": list(COMMAND),
                    "env": [{"name": "LOCKSTEP_PROBE", "value": _literal(script)}],
                    "securityContext": {"privileged": True, "runAsUser": 0},
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "16Mi"},
                        "limits": {"memory": "256Mi"},
                    },
                    "volumeMounts": [{"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"}],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}],
        },
    }


def _literal(text: str) -> str:
    """Kubernetes expands ``$(NAME)`` in a value and makes one dollar sign of two, wherever they stand."""
    return text.replace("$", "$$")
