"""`lockstep audit`: read every node and GPU and say which deviate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli import audit_files, audit_forms, audit_work, default_command, ending, options, progress

if TYPE_CHECKING:
    from bringup.audit import Audit

__all__ = ["app"]

app = typer.Typer(cls=default_command.WithDefault, add_completion=False, rich_markup_mode=None)
app.command("diff")(audit_files.diff)
app.command("merge")(audit_files.merge)


@app.command(default_command.NAME, cls=default_command.Own, hidden=True)
def command(
    fleet: Annotated[
        str | None,
        typer.Argument(metavar="[FLEET]", help="A name in inventory/fleets/, or the path of a fleet file."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--hosts", help="Hosts or host ranges without a fleet file, such as 'gpu-[001-512]'; repeatable."),
    ] = None,
    ansible_inventory: Annotated[
        Path | None,
        typer.Option("--ansible-inventory", metavar="FILE", help="The hosts of an Ansible inventory (INI or YAML)."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Of --ansible-inventory only this group; repeatable.")
    ] = None,
    from_dir: Annotated[
        Path | None,
        typer.Option(
            "--from-dir",
            metavar="FOLDER",
            help="Outputs of `lockstep probe print`, one file per node, gathered by clush, Ansible or srun.",
        ),
    ] = None,
    slurm: Annotated[
        str | None, typer.Option("--slurm", metavar="PARTITION", help="The nodes of a Slurm partition, read over SSH.")
    ] = None,
    kube_context: Annotated[
        str | None,
        typer.Option("--kube-context", metavar="NAME", help="What the Kubernetes API tells of a cluster's GPU nodes."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="URL", help="What exporters told a Prometheus: driver, kernel, BIOS …"),
    ] = None,
    like: Annotated[
        str | None, typer.Option("--like", metavar="NODE", help="Without FLEET: compare with this host.")
    ] = None,
    pinset: Annotated[
        str | None, typer.Option("--pinset", help="Without FLEET: compare with this pinset of the catalogue.")
    ] = None,
    sku: Annotated[str | None, typer.Option("--sku", help="With --pinset: which of its machine types.")] = None,
    pool: options.PoolOption = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", help="Only these nodes: names or ranges; may be repeated.")
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(
            "--facts",
            metavar="ssh|redfish|kubernetes|snapshot|PATH",
            help="ssh: read now (default); redfish, kubernetes: from BMCs, from the cluster. snapshot: the newest "
            "stored one. A path: a stored snapshot, or a folder of probe outputs NODE.jsonl. LOCKSTEP_FACTS says the "
            "same.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only what the stored snapshot of then lacked: 24h, 2026-11-30."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Leave out what this JSON report named already."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="|".join(audit_forms.FORMS), help="Form of the output.")
    ] = "table",
    output: options.OutputOption = None,
    strict: options.StrictOption = False,
    fail_on: options.FailOnOption = "block",
    max_unreachable: options.MaxUnreachableOption = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=1, help="Hard limit per host in seconds (30); twice that in the second pass."),
    ] = None,
    transport: Annotated[
        str,
        typer.Option(
            "--transport",
            metavar="paramiko|openssh",
            help="openssh: by the system's ssh (FIPS, GSSAPI, ProxyCommand, host certificates), a process per host.",
        ),
    ] = "paramiko",
    accept_new_host_keys: Annotated[
        bool,
        typer.Option(
            "--accept-new-host-keys",
            help="Take the key of a host that has none, unverified, and write it to known_hosts. A changed key stays "
            "refused.",
        ),
    ] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also run the heavy vendor tools (dcgm, flint).")] = False,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only this part of the NVLink domains; `audit merge` joins them."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write the snapshot to this file (.jsonl.gz).")
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=1,
            help="Again and again until it is ended; --output is written anew each time.",
        ),
    ] = None,
    fence: Annotated[
        bool, typer.Option("--fence", help="Keep new jobs off nodes that deviate, within the limit of one run.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="FINDING", help="With --fence: this common cause is real; repeatable."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="With --fence: the cluster. Default: KUBECONFIG.")
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign", metavar="KEY", help="Private key: write a signed statement about every node that answered."
        ),
    ] = None,
    statements: Annotated[
        Path | None,
        typer.Option(
            "--statements", metavar="FOLDER", help="Where --sign writes NODE.intoto.json; default: statements."
        ),
    ] = None,
) -> None:
    """Read every node and GPU, and say which deviate from their lock or from each other.

    One script per node over SSH; nothing is written on the nodes' disks, host keys are always verified. Exit codes:
    0 in step, 1 drift or skew, 2 bad input, 3 could not measure, 130 interrupted.

    \b
    lockstep audit lab
    lockstep audit lab --pool blackwell --node 'gpu-[001-002]' --format json
    lockstep audit --hosts 'gpu-[001-512]' --like gpu-001
    lockstep audit --ansible-inventory hosts.ini --format html --output audit.html
    lockstep audit lab --watch 300 --format prometheus --output /var/lib/node_exporter/lockstep.prom
    lockstep audit diff before.jsonl.gz after.jsonl.gz
    lockstep audit merge part-*.jsonl.gz --fleet lab
    """
    options.one_of(format_, *audit_forms.FORMS)
    options.one_of(transport, "paramiko", "openssh", option="--transport")
    options.one_of(fail_on, "block", "warn", "info", option="--fail-on")
    words = audit_work.Words(
        fleet=fleet,
        hosts=tuple(hosts or ()),
        inventory=ansible_inventory,
        groups=tuple(group or ()),
        folder=from_dir,
        partition=slurm,
        context=kube_context,
        prometheus=prometheus,
        like=like,
        pinset=pinset,
        sku=sku,
        pools=tuple(pool or ()),
        nodes=tuple(node or ()),
        facts=facts,
        since=since,
        baseline=baseline,
        shard=shard,
        timeout=timeout,
        deep=deep,
        transport=transport,
        accept_new=accept_new_host_keys,
    )
    _check(words, fence=fence, watch=watch, sign=sign, cluster=bool(accept or kubeconfig), folder=statements)
    options.writable(output, save)
    from lockstep.base import settings

    if sign is not None:
        from pinsets import signing

        # A key that cannot sign is said before a thousand nodes are read.
        signing.private_key(sign)
    given = settings.load()

    def once() -> int:
        with progress.Bar("reading") as bar:
            if words.fleet is not None:
                found, file = audit_work.of_fleet(words, given, bar.advance)
            else:
                found, file = audit_work.of_hosts(words, bar.advance), None
        if watch is not None and found.reading.interrupted:
            # A round that was cut tells less than the one before, whose file stays.
            raise KeyboardInterrupt
        code = audit_work.exit_code(found, strict=strict, fail_on=fail_on, max_unreachable=max_unreachable)
        if save is not None:
            from pinsets import snapshots

            snapshots.write(save, found.reading.snapshot)
        if sign is not None:
            _sign(found, sign, statements or Path("statements"))
        audit_forms.show(found, code, format_, output)
        if fence and file is not None and not found.reading.interrupted:
            for told in audit_work.fence(found, file, given, kubeconfig, accept or []):
                typer.echo(told, err=True)
        return int(code)

    with ending.cleanly():
        if watch is not None:
            audit_work.watch(watch, once, lambda text: typer.echo(text, err=True))
        if code := once():
            raise typer.Exit(code)


def _check(
    words: audit_work.Words,
    *,
    fence: bool,
    watch: float | None,
    sign: Path | None,
    cluster: bool,
    folder: Path | None,
) -> None:
    """Refuse words that do not go together. Raises typer's usage error (exit 2)."""
    others = (words.inventory, words.folder, words.partition, words.context, words.prometheus)
    if sum([words.fleet is not None, bool(words.hosts), *(one is not None for one in others)]) != 1:
        said = "give a FLEET, or one of --hosts, --ansible-inventory, --slurm, --from-dir, --kube-context, --prometheus"
        raise typer.BadParameter(said, param_hint="FLEET")
    if words.fleet is None:
        given = {"--pool": words.pools, "--node": words.nodes, "--facts": words.facts, "--since": words.since}
        if wrong := [name for name, value in {**given, "--fence": fence}.items() if value]:
            raise typer.BadParameter(f"{', '.join(wrong)} need a FLEET", param_hint=wrong[0])
    elif words.like or words.pinset:
        raise typer.BadParameter("a FLEET is compared with its locks", param_hint="--like, --pinset")
    if words.like and words.pinset:
        raise typer.BadParameter("compare with a host or with a pinset", param_hint="--like, --pinset")
    for wrong_alone, needed, present in (
        ("--sku", "--pinset", not words.sku or words.pinset),
        ("--group", "--ansible-inventory", not words.groups or words.inventory),
        ("--accept, --kubeconfig", "--fence", not cluster or fence),
        ("--statements", "--sign", folder is None or sign),
    ):
        if not present:
            raise typer.BadParameter(f"goes with {needed}", param_hint=wrong_alone)
    told = words.folder or words.context or words.prometheus
    if told is not None and words.shard:
        raise typer.BadParameter("nothing is read from nodes here", param_hint="--shard")
    if told is not None or words.facts not in (None, "ssh"):
        ways = {"--timeout": words.timeout, "--deep": words.deep, "--transport": words.transport != "paramiko"}
        if wrong := [name for name, value in {**ways, "--accept-new-host-keys": words.accept_new}.items() if value]:
            raise typer.BadParameter("nothing is read over SSH here", param_hint=", ".join(wrong))
    if watch is not None and (sign is not None or words.folder is not None):
        raise typer.BadParameter("goes with facts that are read now, and without --sign", param_hint="--watch")


def _sign(found: Audit, key: Path, folder: Path) -> None:
    from bringup import attesting

    written = attesting.write(found, key, folder)
    typer.echo(f"{folder}: {len(written)} signed statements; check them with `lockstep verify`", err=True)
