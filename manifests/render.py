"""Component files and templates → objects.

A file of ``components/`` says when the component is wanted and which template is rendered
with which values; a template of ``templates/`` gives one object as YAML. Every value is
written through ``tojson`` (JSON is YAML), a name that a template does not get is an error.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any, Literal

import jinja2
from pydantic import Field

import placement
from inventory import model
from lockstep.base import documents, errors, issues
from manifests import checks

__all__ = ["ComponentFile", "components"]

_HERE = Path(__file__).parent
PART_OF = "lockstep"


class When(documents.Model):
    """The SKUs that a component is for; it is rendered when the fleet has a pool with such a SKU."""

    vendor: Annotated[Literal["nvidia", "amd"] | None, Field(description="None: any.")] = None
    nvlink: Annotated[Literal["rack", "node", "none"] | None, Field(description="None: any.")] = None

    def wants(self, sku: model.Sku) -> bool:
        """Whether the SKU is one of these."""
        return self.vendor in (None, sku.vendor) and self.nvlink in (None, sku.nvlink)


class ObjectEntry(documents.Model):
    """One template and the values of each object rendered from it."""

    template: Annotated[str, Field(description="File name in `templates/`.")]
    each: Annotated[tuple[dict[str, Any], ...], Field(description="One object each.")]


class ComponentFile(documents.Model):
    """A file of ``components/``."""

    component: Annotated[str, Field(description="Name, equal to the file's.")]
    order: Annotated[int, Field(description="Components are applied from the lowest on.")]
    summary: Annotated[str, Field(description="One line for people.")]
    when: Annotated[When, Field(description="`{}`: always.")]
    objects: Annotated[tuple[ObjectEntry, ...], Field(description="In the order in which they are applied.")]


def components(fleet: model.Fleet) -> dict[str, list[dict[str, Any]]]:
    """The fleet's cluster-wide objects by component, both in the order in which they are applied.

    Objects are plain dicts as the Kubernetes API takes them. The fleet's name is the one value
    that is the fleet's own: two fleets on one kind of hardware differ in nothing else.
    Raises `errors.EngineError` when what we render breaks one of `checks.CHECKS`, which is our fault.
    """
    skus = [pool.sku for pool in fleet.pools]
    wanted = [file for file in _files() if any(file.when.wants(sku) for sku in skus) or file.when == When()]
    rendered = {file.component: _objects(file, fleet) for file in wanted}
    if broken := list(checks.run(rendered)):
        raise errors.EngineError("rendered objects are not valid:\n  " + "\n  ".join(broken), place="manifests")
    return rendered


@functools.cache
def _files() -> tuple[ComponentFile, ...]:
    report = issues.Report()
    found = []
    for path in sorted((_HERE / "components").glob("*.yaml")):
        document = documents.load(path, report, shown=f"manifests/components/{path.name}")
        file = document.model(ComponentFile, report) if document is not None else None
        if file is not None and file.component != path.stem:
            report.error(f"manifests/components/{path.name}", 1, f"`component` is {file.component}, not {path.stem}")
        elif file is not None:
            found.append(file)
    report.raise_if_errors("manifests")
    return tuple(sorted(found, key=lambda file: (file.order, file.component)))


@functools.cache
def _environment() -> jinja2.Environment:
    # What is rendered is YAML, not HTML; values are quoted by tojson in every template.
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([_HERE / "templates", Path(placement.__file__).parent / "ledger"]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701
    )


def _objects(file: ComponentFile, fleet: model.Fleet) -> list[dict[str, Any]]:
    found = []
    for entry in file.objects:
        template = _environment().get_template(entry.template)
        for values in entry.each:
            obj = _parsed(template, values, fleet)
            labels = obj["metadata"].setdefault("labels", {})
            labels |= {"app.kubernetes.io/part-of": PART_OF, "lockstep.dev/component": file.component}
            found.append(obj)
    return found


def _parsed(template: jinja2.Template, values: dict[str, Any], fleet: model.Fleet) -> dict[str, Any]:
    place = f"manifests/templates/{template.name}"
    try:
        text = template.render(fleet=fleet, **values)
    except jinja2.UndefinedError as error:
        raise errors.EngineError(
            f"{error.message}, asked for {values.get('name', 'one object')}", place=place
        ) from error
    report = issues.Report()
    document = documents.parse(text, place, report)
    if document is None or not isinstance(document.data, dict):
        reason = report.issues[0].text() if report.issues else "not a mapping"
        raise errors.EngineError(f"renders no object: {reason}", place=place)
    return document.data
