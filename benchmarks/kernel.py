"""Cost of scoring a prediction relative to the prediction: compiled pass, peers, lower bound.

The last section compares the pass with and without repair of dependence in the transport maps.

One thread. Every implementation is timed once per round, in alternating order. Figures are medians
over rounds, and ratios are taken within a round.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.claims import Claim, Say, Scale, report
from benchmarks.dependence_models import CATEGORY_RELATION
from benchmarks.kernel_subjects import (
    LARGE,
    SMALL,
    KernelSubject,
    compiled_kernel,
    make_repaired,
    make_subject,
)
from benchmarks.peers import PeerUnavailableError, peer_python
from benchmarks.structural_models import HIRING
from monitor.scoring.kernel import Target, load_kernel

_BATCHES = (1, 8, 32, 256)
FORWARD = "eager forward of F alone"
COMPILED = "compiled joint pass"
EAGER = "eager joint pass"
UNREPAIRED = "compiled joint pass without repair"
REPAIRED = "compiled joint pass with repair"
CAPTUM = "Captum, prediction sensitivity alone"
TORCH_COMPILE = "torch.compile, prediction sensitivity alone"
NUMPY = "NumPy closed form, prediction sensitivity alone"
FLOOR = "compiled forward of F alone"
# Seconds per implementation and round.
_SLICE = 0.05

Implementation = Callable[[Tensor], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds per call of each implementation, one value per round."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """Median over rounds."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Median over rounds of the ratio of two implementations."""
        pairs = zip(self.seconds[name], self.seconds[to], strict=True)
        return statistics.median(one / other for one, other in pairs)


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Time all implementations on both networks; print every row and return the claims."""
    torch.set_num_threads(1)
    rounds = scale.pick(full=11, quick=5, smoke=1)
    captum = _Captum.start(install=scale is not Scale.SMOKE)
    timings: dict[str, dict[int, Timing]] = {}
    for shape in (SMALL,) if scale is Scale.SMOKE else (SMALL, LARGE):
        subject = make_subject(shape)
        say(f"compiling for {shape.name}")
        implementations = _implementations(subject, all_peers=not scale.small)
        say(f"timing {shape.name}")
        timings[shape.name] = time_batches(subject, implementations, captum, rounds)
    if not scale.small:
        for title, options in (
            ("two attributes", {"attributes": 2}),
            ("four groups", {"groups": 4}),
        ):
            say(f"compiling for {title}")
            subject = make_subject(SMALL, **options)
            joint = {FORWARD: _forward(subject), COMPILED: _joint(subject), EAGER: _eager(subject)}
            timings[f"{SMALL.name}, {title}"] = time_batches(subject, joint, None, rounds)
    repaired = _repaired(scale, say, rounds)
    Console().print(_table(timings | repaired))
    claims = _claims(timings, rounds, captum=captum is not None)
    return [*claims, *_repaired_claims(repaired, rounds)]


def _repaired(scale: Scale, say: Say, rounds: int) -> dict[str, dict[int, Timing]]:
    """The compiled pass with and without repair of dependence, on the same network and rows."""
    models = {"one repaired feature": CATEGORY_RELATION, "two causal orders": HIRING}
    if scale is Scale.SMOKE:
        del models["two causal orders"]
    timings = {}
    for title, model in models.items():
        say(f"compiling for repaired maps, {title}")
        with_repair, without = (make_repaired(model, repair=repair) for repair in (True, False))
        passes = {
            FORWARD: _forward(without),
            # A smoke run saves a compilation.
            UNREPAIRED: (_eager if scale is Scale.SMOKE else _joint)(without),
            REPAIRED: _joint(with_repair),
        }
        timings[f"repaired maps, {title}"] = time_batches(without, passes, None, rounds)
    return timings


def _repaired_claims(timings: dict[str, dict[int, Timing]], rounds: int) -> list[Claim]:
    return [
        Claim(
            claim=f"{REPAIRED}, {title}, batch {batch}",
            figure=by_batch[batch].ratio(REPAIRED, UNREPAIRED),
            unit="× the pass without repair",
            side="at most",
            bar=3,
            rounds=rounds,
        )
        for title, by_batch in timings.items()
        for batch in (1, 32)
    ]


def _implementations(subject: KernelSubject, *, all_peers: bool) -> dict[str, Implementation]:
    ways = {FORWARD: _forward(subject), COMPILED: _joint(subject), EAGER: _eager(subject)}
    ways[NUMPY] = _numpy(subject)
    if all_peers:
        ways[TORCH_COMPILE] = _torch_compile(subject)
        ways[FLOOR] = _floor(subject)
    return ways


def _forward(subject: KernelSubject) -> Implementation:
    network = subject.network

    def forward(rows: Tensor) -> object:
        with torch.inference_mode():
            return network(rows)

    return forward


def _joint(subject: KernelSubject) -> Implementation:
    target = Target.here()
    assert target is not None
    return load_kernel(compiled_kernel(subject, target), target, subject.sensitivity).joint


def _eager(subject: KernelSubject) -> Implementation:
    return subject.sensitivity.joint


def _floor(subject: KernelSubject) -> Implementation:
    """The forward pass alone, compiled by the same compiler."""
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(
        subject.network, (subject.rows[:4],), dynamic_shapes=({0: batch},)
    )
    with tempfile.TemporaryDirectory() as folder:
        package = str(Path(folder, "forward.pt2"))
        torch._inductor.aoti_compile_and_package(program, package_path=package)
        loader = torch._C._aoti.AOTIModelPackageLoader(package, "model", False, 1, -1)  # noqa: FBT003
    return lambda rows: loader.run([rows])


def _torch_compile(subject: KernelSubject) -> Implementation:
    """Both gradients of modules compiled just in time."""
    classifier = torch.compile(subject.network, dynamic=True)
    status = torch.compile(subject.status, dynamic=True)

    def sensitivity(rows: Tensor) -> Tensor:
        tracked = rows.clone().requires_grad_()
        (of_f,) = torch.autograd.grad(classifier(tracked).sigmoid().sum(), tracked)
        (of_a,) = torch.autograd.grad(status(tracked).softmax(1)[:, 1].sum(), tracked)
        terms = of_f.abs() * of_a.abs()
        return terms / terms.sum(1, keepdim=True).clamp_min(1e-30)

    return sensitivity


def _numpy(subject: KernelSubject) -> Implementation:
    """Both gradients of the two networks, written by hand."""
    classifier = _weights(subject.network)
    status = _weights(subject.status.layers)
    mean, scale = subject.status.mean.numpy(), subject.status.scale.numpy()

    def sensitivity(rows: Tensor) -> object:
        x = rows.numpy()
        of_f = _gradient(x, classifier, lambda z: (np.maximum(z, 0), (z > 0).astype(np.float32)))
        of_a = _gradient((x - mean) * scale, status, _softplus) * scale
        terms = np.abs(of_f) * np.abs(of_a)
        return terms / np.maximum(terms.sum(1, keepdims=True), 1e-30)

    return sensitivity


Layers = list[tuple[NDArray[np.float32], NDArray[np.float32]]]


def _weights(network: nn.Sequential) -> Layers:
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in layers]


def _softplus(z: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    e = np.exp(-np.abs(z))
    return np.maximum(z, 0) + np.log1p(e), np.where(z > 0, 1 / (1 + e), e / (1 + e))


def _gradient(
    x: NDArray[np.float32],
    layers: Layers,
    activation: Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], NDArray[np.float32]]],
) -> NDArray[np.float32]:
    """Gradient of the output, or of the second output minus the first, `[n, d]`."""
    slopes = []
    for weight, bias in layers[:-1]:
        x, slope = activation(x @ weight.T + bias)
        slopes.append(slope)
    last = layers[-1][0]
    back = np.broadcast_to(last[-1] - last[0] if len(last) > 1 else last[0], x.shape)
    for (weight, _), slope in zip(reversed(layers[:-1]), reversed(slopes), strict=True):
        back = (back * slope) @ weight
    return back


class _Captum:
    """Captum in a process of its own, which runs only while no other implementation runs."""

    def __init__(self, python: Path) -> None:
        script = Path(__file__).with_name("captum_peer.py")
        self.process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @classmethod
    def start(cls, *, install: bool) -> _Captum | None:
        """Start Captum; print a message and return None if it is not available."""
        try:
            return cls(peer_python("captum", install=install))
        except PeerUnavailableError as error:
            print(f"without Captum: {error}")
            return None

    def seconds(self, subject: KernelSubject, batch: int) -> float:
        """Seconds per call, measured in the other process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        groups = sum(len(a.groups) for a in subject.sensitivity.spec.protected_attributes)
        repeats = max(3, 200 // batch)
        widths = ",".join(map(str, subject.shape.widths))
        print(widths, groups, batch, repeats, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def time_batches(
    subject: KernelSubject,
    implementations: dict[str, Implementation],
    captum: _Captum | None,
    rounds: int,
) -> dict[int, Timing]:
    """Time every implementation at every batch size, in alternating order."""
    timings = {}
    for batch in _BATCHES:
        rows = subject.rows[:batch].contiguous()
        repeats = {name: _repeats(call, rows) for name, call in implementations.items()}
        seconds: dict[str, list[float]] = {name: [] for name in implementations}
        for number in range(rounds):
            order = list(implementations.items())
            for name, call in order if number % 2 == 0 else reversed(order):
                seconds[name].append(_seconds(call, rows, repeats[name]))
            if captum is not None:
                seconds.setdefault(CAPTUM, []).append(captum.seconds(subject, batch))
        timings[batch] = Timing(seconds=seconds)
    return timings


def _repeats(call: Implementation, rows: Tensor) -> int:
    """Number of calls per round."""
    for _ in range(3):
        call(rows)
    return max(3, int(_SLICE / _seconds(call, rows, 5)))


def _seconds(call: Implementation, rows: Tensor, repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        call(rows)
    return (time.perf_counter() - started) / repeats


def _table(timings: dict[str, dict[int, Timing]]) -> Table:
    headings = [f"batch {batch}" for batch in _BATCHES]
    table = Table(
        "network",
        "implementation",
        *headings,
        title="µs per call, and relative to an eager forward of F alone",
    )
    for network, by_batch in timings.items():
        for name in by_batch[1].seconds:
            cells = [
                f"{t.median(name) * 1e6:.0f} ({t.ratio(name, FORWARD):.2f} ×)"
                for t in by_batch.values()
            ]
            table.add_row(network, name, *cells)
        table.add_section()
    return table


def _claims(timings: dict[str, dict[int, Timing]], rounds: int, *, captum: bool) -> list[Claim]:
    # A smoke run has the small network only.
    networks = {name: timings[name] for name in (SMALL.name, LARGE.name) if name in timings}
    bars = {SMALL.name: (1, 2.5), LARGE.name: (256, 6)}
    claims = []
    for name, by_batch in networks.items():
        batch, bar = bars[name]
        ratio = by_batch[batch].ratio(COMPILED, FORWARD)
        claims.append(_at_most(f"{COMPILED}, {name}, batch {batch}", ratio, bar, rounds))
    for name, by_batch in networks.items():
        claims.append(
            Claim(
                claim=f"{EAGER} relative to the compiled one, {name}, batch 1",
                figure=by_batch[1].ratio(EAGER, COMPILED),
                unit="× as long",
                side="at least",
                bar=8,
                rounds=rounds,
            )
        )
    for name, by_batch in networks.items() if captum else ():
        ratios = {f"batch {b}": t.ratio(CAPTUM, COMPILED) for b, t in by_batch.items()}
        claims.append(
            Claim(
                claim=f"{CAPTUM} relative to the compiled joint pass, {name}, every batch size",
                figure=min(ratios.values()),
                unit="× as long",
                side="at least",
                bar=5,
                rounds=rounds,
                details=ratios,
            )
        )
    return claims


def _at_most(claim: str, figure: float, bar: float, rounds: int) -> Claim:
    return Claim(
        claim=claim,
        figure=figure,
        unit="× an eager forward of F alone",
        side="at most",
        bar=bar,
        rounds=rounds,
    )


if __name__ == "__main__":
    report("Scoring a prediction relative to making it", measure)
