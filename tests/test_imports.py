"""Directions of imports between the packages, and modules that may import heavy packages."""

from __future__ import annotations

import grimp
import pytest

# Parts of the monitor that the audits may import.
OFFLINE_AUDIT_MAY_USE = {
    "monitor.bundle",
    "monitor.client",
    "monitor.scoring.counterfactual",
    "monitor.traffic",
}
# Modules (and everything below them) that may import a package.
ONLY_IN = {
    "grpc": {"monitor.wire", "monitor.transport", "monitor.client"},
    "grpc_health": {"monitor.transport"},
    "grpc_reflection": {"monitor.transport"},
    "fastapi": {"monitor.transport"},
    "uvicorn": {"monitor.transport"},
    "uvloop": {"monitor.commands.serve"},
    "prometheus_client": {"monitor.transport", "monitor.metrics", "monitor.server"},
    "torch": {
        "monitor.bundle.classifier",
        "monitor.commands.bundle",
        "monitor.scoring.counterfactual",
        "monitor.demo",
        "monitor.scoring.first_layer",
        "monitor.fitting.classifier_file",
        "monitor.fitting.draws",
        "monitor.fitting.intervals",
        "monitor.fitting.run",
        "monitor.fitting.scored_rows",
        "monitor.fitting.separability",
        "monitor.fitting.update",
        "monitor.scoring.judge",
        "monitor.scoring.scorer",
        "monitor.scoring.compiling",
        "monitor.scoring.kernel",
        "monitor.scoring.scores",
        "monitor.scoring.sensitivity",
        "monitor.server",
        "monitor.stream",
        "monitor.scoring.input_check",
        "monitor.scoring.status_model",
        "monitor.threads",
        "monitor.world.classifiers",
        "offline_audit.maps.quantile",
        "offline_audit.maps.transport_map",
        "offline_audit.maps.wgan",
        "offline_audit.projection.network_distances",
        "offline_audit.model.local",
    },
    "click": {"monitor.cli", "monitor.commands"},
    "rich": {"monitor.commands", "monitor.demo", "offline_audit.progress"},
    "pyarrow": {"monitor.demo", "monitor.fitting", "monitor.traffic", "offline_audit"},
    "duckdb": {"monitor.demo", "offline_audit"},
    "ibis": {"offline_audit"},
    "pyspark": {"offline_audit"},
    "matplotlib": {
        "monitor.fitting.audit_figure",
        "offline_audit.finding",
        "offline_audit.fliptest.figures",
        "offline_audit.fliptest.result",
        "offline_audit.permutation.comparisons",
        "offline_audit.permutation.result",
        "offline_audit.permutation.selection",
        "offline_audit.plots",
        "offline_audit.projection.result",
    },
    "ot": {
        "offline_audit.fliptest.flipset",
        "offline_audit.maps.exact",
        "offline_audit.maps.validation",
    },
    "sklearn": {"offline_audit.fliptest.rules", "offline_audit.maps.validation"},
    "pandas": set(),
    "pickle": set(),
    "os": {
        "monitor.bundle.reader",
        "monitor.bundle.writer",
        "monitor.config",
        "monitor.drift.state",
        "monitor.scoring.kernel",
        "monitor.review",
        "monitor.commands.serve",
        "monitor.traffic.appender",
        "monitor.traffic.waiting",
        "monitor.traffic.ledger",
        "monitor.traffic.retention",
        "monitor.traffic.spool",
        "monitor.traffic.store",
        "monitor.world",
    },
}


# Modules that need numpy but no heavy package, so that they run and are tested anywhere.
NUMPY_ONLY = {
    "monitor.scoring.baseline",
    "monitor.drift.alarms",
    "monitor.drift.bound",
    "monitor.drift.detector",
    "monitor.npz",
    "monitor.drift.reference",
    "monitor.drift.separation",
    "monitor.drift.share",
    "monitor.drift.state",
    "monitor.drift.watch",
    "monitor.policy",
}
HEAVY = {"torch", "scipy", "sklearn", "pyarrow", "grpc", "fastapi", "matplotlib", "pydantic"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "monitor", "offline_audit", include_external_packages=True, cache_dir=None
    )


def within(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def importers(graph: grimp.ImportGraph, package: str) -> set[str]:
    return graph.find_modules_that_directly_import(package) if package in graph.modules else set()


def test_the_monitor_never_imports_the_audits(graph):
    for module in graph.modules:
        if within(module, {"monitor"}):
            imported = graph.find_modules_directly_imported_by(module)
            assert not [name for name in imported if within(name, {"offline_audit"})], module


def test_the_audits_import_only_allowed_parts_of_the_monitor(graph):
    for module in graph.modules:
        if within(module, {"offline_audit"}):
            for name in graph.find_modules_directly_imported_by(module):
                assert not within(name, {"monitor"}) or within(name, OFFLINE_AUDIT_MAY_USE)


@pytest.mark.parametrize("package", sorted(ONLY_IN))
def test_a_package_is_imported_only_by_the_listed_modules(graph, package):
    others = {m for m in importers(graph, package) if not within(m, ONLY_IN[package])}
    assert others == set()


@pytest.mark.parametrize("module", sorted(NUMPY_ONLY))
def test_statistics_need_numpy_only(graph, module):
    reached = graph.find_modules_directly_imported_by(module)
    assert "numpy" in reached
    assert reached & HEAVY == set()


# Modules of the default maps, which audits without POT can still fit.
WITHOUT_POT = ("quantile", "gaussian", "sliced")


@pytest.mark.parametrize("name", WITHOUT_POT)
def test_quick_maps_need_no_other_package(graph, name):
    for package in ("ot", "sklearn"):
        assert not graph.find_shortest_chain(f"offline_audit.maps.{name}", package)
    assert graph.find_shortest_chain("offline_audit.maps.exact", "ot")


def test_the_graph_contains_known_imports(graph):
    """An empty graph would pass all other tests."""
    assert "monitor.wire.open_inference_pb2_grpc" in importers(graph, "grpc")
    assert "monitor.bundle.classifier" in importers(graph, "torch")
