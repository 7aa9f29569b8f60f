"""Files that one request, one audit and one fit enter, and the import structure.

A file is entered if one of its functions runs during the operation. Every operation runs once
before, so that imports and caches do not count. Files of `monitor/` and `offline_audit/` count,
generated code does not.
"""

from __future__ import annotations

import ast
import asyncio
import datetime as dt
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import grimp
import grpc
import numpy as np
import torch
from rich.table import Table

from benchmarks.claims import Claim, Say, Scale, print_wide, report
from monitor import Bundle, FitData, fit
from monitor.server import Server
from monitor.traffic.columns import TrafficColumns, group_column
from monitor.wire.open_inference_pb2 import ModelInferRequest
from monitor.wire.open_inference_pb2_grpc import GRPCInferenceServiceStub
from offline_audit import Window, audit_window
from tests.families import seeded
from tests.serving import PEOPLE, SPEC, running
from tests.traffic_logs import (
    ATTRIBUTES,
    START,
    outcome_table,
    traffic_table,
    write_outcomes,
    write_traffic,
)

ROOT = Path(__file__).parents[1]
_PACKAGES = ("monitor", "offline_audit")
_GENERATED = "monitor/wire"
# Largest number of files that an operation may enter.
_MOST_FILES = {"permutation": 22, "fliptest": 45, "inference": 22}
_LONGEST_FILE, _LONGEST_CHAIN, _SMALL = 399, 12, 40
# A small module is allowed if its docstring gives a reason.
_REASON = re.compile(r"\b(because|since|so that|instead of)\b")


class Trace:
    """Files entered and calls between their folders.

    Attributes:
        files: Number of calls into each file, by path relative to the root.
        crossings: Number of calls between folders, by caller and callee.
    """

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.crossings: Counter[tuple[str, str]] = Counter()
        self._stacks = threading.local()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record this thread, and threads that start in the meantime."""
        self._stacks.files = []
        sys.setprofile(self._event)
        threading.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        stack: list[str | None] = self._stacks.__dict__.setdefault("files", [])
        if event == "return":
            if stack:
                stack.pop()
            return
        file = _project_file(frame.f_code.co_filename)
        caller = stack[-1] if stack else None
        # A call through another package counts as a call of the file that called that package.
        stack.append(file or caller)
        if file is None or frame.f_code.co_name == "<module>":
            return
        self.files[file] += 1
        if caller is not None and Path(caller).parent != Path(file).parent:
            self.crossings[str(Path(caller).parent), str(Path(file).parent)] += 1


@cache
def _project_file(filename: str) -> str | None:
    path = Path(filename)
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).as_posix()
    if not name.startswith(tuple(f"{package}/" for package in _PACKAGES)):
        return None
    return None if name.startswith(_GENERATED) else name


def measure(_: Scale, say: Say) -> list[Claim]:
    """Trace the operations, and analyse files and imports."""
    torch.set_num_threads(1)
    traces: dict[str, Trace] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("fit")
        traces["fit"] = _traced(lambda: _fit(folder / "bundle"))
        say("inference")
        traces["inference"] = asyncio.run(_inference(folder / "bundle"))
        log = {"traffic": {"path": folder / "served"}}
        traces["inference, with log"] = asyncio.run(_inference(folder / "bundle", **log))
        _write_log(folder)
        traces["read a window"] = _traced(lambda: _read(folder).close())
        for audit, run in _AUDITS.items():
            say(audit)
            with _read(folder) as window:
                traces[audit] = _traced(lambda run=run, window=window: run(window, folder))  # type: ignore[misc]
    _print(traces)
    say("imports")
    return [*_file_claims(traces), *_layout_claims()]


def _traced(operation: Callable[[], object]) -> Trace:
    operation()
    trace = Trace()
    with trace.recorded():
        operation()
    return trace


def _fit(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    fit(seeded("MLP"), data, SPEC, path, compiled=False)


async def _inference(bundle: Path, **parts: Any) -> Trace:
    """One request of one row over gRPC to a server in this process."""
    row = PEOPLE.features[:1]
    request = ModelInferRequest(model_name=SPEC.model.name, raw_input_contents=[row.tobytes()])
    request.inputs.add(name="features", datatype="FP32", shape=list(row.shape))

    async def use(server: Server) -> Trace:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
            infer: Callable[[ModelInferRequest], Awaitable[object]]
            infer = GRPCInferenceServiceStub(channel).ModelInfer  # type: ignore[no-untyped-call]
            for _ in range(3):
                await infer(request)
            trace = Trace()
            with trace.recorded():
                await infer(request)
            return trace

    async with running(bundle, **parts) as server:
        return await use(server)


def _write_log(folder: Path) -> None:
    """Write traffic of all people, with labels and groups by sex."""
    n = len(PEOPLE.features)
    with torch.no_grad():
        logit = seeded("MLP")(torch.from_numpy(PEOPLE.features)).numpy().ravel()
    ids, zeros = [f"r{number:05d}" for number in range(n)], np.zeros(n, int)
    start = (START - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    times = start + np.arange(n) * 1_000_000
    manifest = Bundle.read(folder / "bundle").manifest
    traffic = {
        "request_id": ids,
        "row": zeros,
        "time": times,
        "score": 1 / (1 + np.exp(-logit)),
        "logit": logit,
        "decision": (logit >= 0).astype("i1"),
        "boundary_distance": np.abs(logit),
        "action": ["none"] * n,
        **{f.name: PEOPLE.features[:, i] for i, f in enumerate(manifest.features)},
    }
    outcomes = {
        "request_id": ids,
        "row": zeros,
        "label": PEOPLE.labels,
        group_column("sex"): np.array(ATTRIBUTES["sex"])[PEOPLE.groups["sex"]],
        "observed_at": times,
        "received_at": times,
        "source": ["file"] * n,
    }
    columns = TrafficColumns.of(manifest)
    write_traffic(folder / "log", traffic_table(traffic, columns), columns=columns)
    write_outcomes(folder / "outcomes", outcome_table(outcomes, ("sex",)))


def _read(folder: Path) -> Window:
    return Window.read(folder / "log", folder / "outcomes")


_AUDITS: Mapping[str, Callable[[Window, Path], object]] = {
    "permutation": lambda window, _: audit_window(
        window, {"permutation": {"metrics": ["selection_rate"]}}, "sex"
    ),
    "projection": lambda window, _: audit_window(
        window, {"projection": {"criteria": ["equalized_odds"]}}, "sex"
    ),
    "fliptest": lambda window, folder: audit_window(
        window,
        {"fliptest": {"n_resamples": 19, "n_bootstrap": 10}},
        "sex",
        model=folder / "bundle",
        progress=False,
    ),
}


def _print(traces: Mapping[str, Trace]) -> None:
    table = Table("operation", title="Files entered and calls between folders")
    for heading in ("files", "calls", "between folders", "pairs of folders"):
        table.add_column(heading, justify="right")
    table.add_column("most calls between")
    for name, trace in traces.items():
        between = trace.crossings
        most = [f"{one} → {two} {n:,}" for (one, two), n in between.most_common(3)]
        table.add_row(
            name,
            *(f"{n:,}" for n in (len(trace.files), trace.files.total(), between.total())),
            str(len(between)),
            "\n".join(most),
        )
    print_wide(table)
    for name, trace in traces.items():
        print(f"{name} ({len(trace.files)}): {', '.join(sorted(trace.files))}\n")


def _file_claims(traces: Mapping[str, Trace]) -> list[Claim]:
    return [
        Claim(
            claim=f"{name}: files entered",
            figure=len(traces[name].files),
            unit="files",
            side="at most",
            bar=most,
            rounds=1,
            details={"calls between folders": traces[name].crossings.total()},
        )
        for name, most in _MOST_FILES.items()
    ]


def _layout_claims() -> list[Claim]:
    lengths = {name: len(path.read_text().splitlines()) for name, path in _modules().items()}
    longest = max(lengths, key=lengths.__getitem__)
    small, chain = _small_modules(lengths), _longest_chain()
    return [
        Claim(
            claim="the longest file",
            figure=lengths[longest],
            unit="lines",
            side="at most",
            bar=_LONGEST_FILE,
            rounds=len(lengths),
            details={
                name: n for name, n in lengths.items() if n > _LONGEST_FILE or name == longest
            },
        ),
        Claim(
            claim=f"modules of fewer than {_SMALL} lines with one importer and no stated reason",
            figure=len(small),
            unit="modules",
            side="at most",
            bar=0,
            rounds=len(lengths),
            details={"modules": ", ".join(small) or "none"},
        ),
        Claim(
            claim="the longest import chain",
            figure=len(chain),
            unit="modules",
            side="at most",
            bar=_LONGEST_CHAIN,
            rounds=1,
            details={"chain": " → ".join(chain)},
        ),
    ]


def _modules() -> dict[str, Path]:
    """Files by module name, without generated code."""
    files = {}
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.relative_to(ROOT).as_posix().startswith(_GENERATED):
                parts = path.relative_to(ROOT).with_suffix("").parts
                files[".".join(part for part in parts if part != "__init__")] = path
    return files


def _small_modules(lengths: Mapping[str, int]) -> list[str]:
    """Small modules that only one other module imports, and that give no reason."""
    graph = grimp.build_graph(*_PACKAGES, cache_dir=None)
    small = []
    for name, path in _modules().items():
        if lengths[name] >= _SMALL or path.name in ("__init__.py", "__main__.py"):
            continue
        # A public module is imported by its package's lazy `__init__`.
        importers = graph.find_modules_that_directly_import(name)
        reason = _REASON.search(ast.get_docstring(ast.parse(path.read_text())) or "")
        if len(importers) == 1 and not importers & set(_PACKAGES) and not reason:
            small.append(f"{name} ({lengths[name]})")
    return small


def _longest_chain() -> list[str]:
    """Longest chain of imports at run time; a cycle counts as one step."""
    graph = grimp.build_graph(*_PACKAGES, cache_dir=None, exclude_type_checking_imports=True)
    imports = {
        name: sorted(graph.find_modules_directly_imported_by(name) - {name})
        for name in sorted(graph.modules)
        if not name.startswith(_GENERATED.replace("/", "."))
    }
    chains: dict[str, list[str]] = {}

    def chain(name: str, above: tuple[str, ...]) -> list[str]:
        if name not in chains:
            below = [
                chain(other, (*above, name))
                for other in imports[name]
                if other in imports and other not in (*above, name)
            ]
            chains[name] = [name, *max(below, key=len, default=[])]
        return chains[name]

    return max((chain(name, ()) for name in imports), key=len)


if __name__ == "__main__":
    report("Paths through the code", measure)
