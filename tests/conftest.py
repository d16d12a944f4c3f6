"""Tiers: which tests can run on this machine, and that those which must run did.

A test marked `lab`, `cluster`, `engine`, `browser`, `registry` or `debian` that cannot run here skips with its reason.
With LOCKSTEP_REQUIRE_TIERS (CI: all six) such a skip is a failure, and so is a tier of which no test ran.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from lockstep.base import errors, programs

if TYPE_CHECKING:
    from lab.control_plane_testing import Plane

CHECKOUT = Path(__file__).parents[1]
CLUSTER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl")
_BROWSER = shutil.which("chromium-headless-shell")
ENGINE = ("pulumi", "pulumi-language-python", "pulumi-resource-kubernetes")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Root of the checkout under test."""
    return CHECKOUT


@pytest.fixture(scope="session")
def samples() -> Path:
    """Real samples, read in place; never copied into the repository."""
    folder = os.environ.get("LOCKSTEP_SAMPLES")
    if not folder:
        pytest.skip("LOCKSTEP_SAMPLES names no folder of real samples")
    if not Path(folder).is_dir():
        pytest.fail(f"LOCKSTEP_SAMPLES={folder} is not a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A real control plane for all tests of the session that are marked `cluster`; each takes machines of its own."""
    from lab import control_plane_testing

    with control_plane_testing.running(tmp_path_factory.mktemp("control-plane") / "lab") as found:
        yield found


@pytest.fixture(scope="session")
def applied(plane: Plane) -> dict[str, list[dict[str, Any]]]:
    """The cluster-wide objects of a fleet of NVIDIA racks, applied to `plane` as they are."""
    from inventory import model
    from manifests import render

    sku = model.SkuFile(sku="lab", accelerator="NVIDIA GB200", gpus={}, nvlink="rack")
    pool = model.Pool("p", sku, "os", "pinset", (), model.Disruption(), ())  # type: ignore[arg-type]
    fleet = model.Fleet("lab", model.Ssh(), (), (pool,), CHECKOUT)  # type: ignore[arg-type]
    rendered = render.components(fleet)
    for found in rendered.values():
        plane.apply(found)
    return rendered


def _lab() -> str | None:
    """Why no lab node can run here; None when it can."""
    if os.geteuid() != 0:
        return "lab nodes need root"
    if shutil.which("unshare") is None:
        return "lab nodes need unshare (util-linux)"
    flags = ["--mount", "--uts", "--ipc", "--pid", "--fork"]
    done = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no namespaces here: {done.stderr.strip()}"


def _built(names: tuple[str, ...]) -> str | None:
    for name in names:
        try:
            programs.find(name)
        except errors.LockstepError as error:
            return f"{error.message}: {error.hint}"
    return None


@functools.cache
def _obstacle(tier: str) -> str | None:
    """Reason for which tests of ``tier`` cannot run here, looked up once."""
    checks: dict[str, Callable[[], str | None]] = {
        "lab": _lab,
        "cluster": lambda: _built(CLUSTER),
        "engine": lambda: _built(ENGINE),
        "browser": lambda: None if _BROWSER else "no chromium-headless-shell (requirements/debian.txt)",
        # Only the installer's own error tells whether a registry is reached: these tests skip by themselves.
        "registry": lambda: None,
        # Each looks for the programs that it starts.
        "debian": lambda: None,
    }
    return checks[tier]()


@pytest.fixture(scope="session")
def obstacle() -> Callable[[str], str | None]:
    """Why tests of a tier cannot run here, None when they can; for those that no tier may require."""
    return _obstacle


TIERS = ("lab", "cluster", "engine", "browser", "registry", "debian")
LONG = tuple(tier for tier in TIERS if tier != "debian")
"""Tiers whose tests take long; a Debian program answers at once."""
REQUIRED = tuple(name for name in os.environ.get("LOCKSTEP_REQUIRE_TIERS", "").split(",") if name)
_ran: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    """A typing error in the list of required tiers must not require nothing."""
    # CI must say the same of the same commit; new examples are looked for on people's machines and by `make slow`.
    hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
    if os.environ.get("CI"):
        hypothesis.settings.load_profile("ci")
    if unknown := set(REQUIRED) - set(TIERS):
        raise pytest.UsageError(f"LOCKSTEP_REQUIRE_TIERS: no tier is called {', '.join(sorted(unknown))}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run only when asked for by `-m`. Side by side the files that take longest begin first."""
    if hasattr(config, "workerinput"):
        # By file, and in a file as they stand: the tests of one lab go on where the one before stopped.
        tiers = {item.path: sum(item.get_closest_marker(tier) is not None for tier in LONG) for item in items}
        items.sort(key=lambda item: -tiers[item.path])
    if config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip with the reason what cannot run here."""
    for tier in TIERS:
        if item.get_closest_marker(tier) and (reason := _obstacle(tier)):
            pytest.skip(f"{tier}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip in a required tier is a failure."""
    report = yield
    tiers = [tier for tier in TIERS if item.get_closest_marker(tier)]
    if call.when == "call" and not report.skipped:
        _ran.update(tiers)
    if report.skipped and not hasattr(report, "wasxfail") and set(tiers) & set(REQUIRED):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{', '.join(tiers)} must run (LOCKSTEP_REQUIRE_TIERS) but: {reason}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What ran in a process of pytest-xdist ran; one that died has said nothing."""
    _ran.update(getattr(node, "workeroutput", {}).get("ran", ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A required tier of which nothing ran is a failure."""
    if session.config.option.collectonly:
        return
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ran"] = sorted(_ran)
        return
    if absent := set(REQUIRED) - _ran:
        print(f"\nno test of these required tiers ran: {', '.join(sorted(absent))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
