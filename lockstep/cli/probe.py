"""`lockstep probe`: the exact script that reads a node."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer()


@app.callback()
def _verb() -> None:
    """Show the exact script that reads a node."""


@app.command(name="print")
def print_(
    deep: Annotated[bool, typer.Option("--deep", help="With the heavy vendor tools, as `audit --deep` reads.")] = False,
) -> None:
    """Print the script that every node is given, for reading it before the first audit or running it by hand.

    Fed to `sh -s` it writes JSON Lines; files NODE.jsonl of such outputs in one folder are what
    `lockstep audit FLEET --facts FOLDER` takes.

    \b
    lockstep probe print | less
    lockstep probe print | ssh gpu-001 sh -s > outputs/gpu-001.jsonl
    """
    from bringup import probe
    from pinsets import components

    typer.echo(probe.script(components.load(), deep=deep), nl=False)


@app.command()
def pods(
    node: Annotated[
        list[str], typer.Option("--node", help="Nodes of the cluster, or ranges such as 'gpu-[001-004]'; repeatable.")
    ],
    image: Annotated[str, typer.Option("--image", help="An image that has `chroot` (busybox), by digest.")],
    namespace: Annotated[str, typer.Option("--namespace", help="Of the pods; made when it is missing.")] = (
        "lockstep-probe"
    ),
    deep: Annotated[bool, typer.Option("--deep", help="With the heavy vendor tools.")] = False,
) -> None:
    """Print the manifest of one short-lived privileged pod per node that runs the probe where nobody has SSH.

    \b
    lockstep probe pods --node 'gpu-[001-004]' --image busybox@sha256:… | kubectl apply -f -
    kubectl -n lockstep-probe wait --for=jsonpath='{.status.phase}'=Succeeded pod --all --timeout=3m
    for p in $(kubectl -n lockstep-probe get pods -o name); do
      kubectl -n lockstep-probe logs $p > outputs/${p#pod/probe-}.jsonl; done
    kubectl delete namespace lockstep-probe; lockstep audit --from-dir outputs
    """
    import json

    from bringup import probe
    from lockstep.base import hostranges
    from manifests import pod_probe
    from pinsets import components

    names = [name for pattern in node for name in hostranges.unfold(pattern, place="--node")]
    script = probe.script(components.load(), deep=deep)
    made = pod_probe.objects(list(dict.fromkeys(names)), script, image=image, namespace=namespace)
    # JSON is YAML, and kubectl takes it as it is.
    typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}, indent=1))
