"""Cost of raw inputs: from the tensors of a request to the classifier's features, per row."""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.claims import Claim, Say, Scale, report
from monitor import FitSpec, Fitted
from monitor.codec import FeatureCodec
from monitor.request import InputTensor
from monitor.settings import ServerConfig

_NUMBERS, _WORDS = 6, (7, 16, 7, 14, 6, 5, 2, 41)
_MEASURED = (64, 1_000)
_BAR_MICROSECONDS = 10.0


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Time of the codec for the fourteen columns of Adult as raw bytes, as over gRPC."""
    spec = _spec()
    codec = FeatureCodec(
        spec.bundle_spec("classifier.pt2", spec.features, Fitted.now(seed=0, rows=0)),
        ServerConfig(),
    )
    rounds = scale.pick(full=2_001, quick=401, smoke=3)
    claims = []
    alone = _raw_tensors(spec, 1)
    single = _median(lambda: codec.decode(alone), rounds)
    for rows in _MEASURED:
        say(f"{rows} rows")
        raw, encoded = _raw_tensors(spec, rows), _encoded_tensor(spec, rows)
        seconds = _median(lambda raw=raw: codec.decode(raw), rounds)  # type: ignore[misc]
        plain = _median(lambda encoded=encoded: codec.decode(encoded), rounds)  # type: ignore[misc]
        claims.append(
            Claim(
                claim=f"decode and encode {len(spec.inputs)} raw inputs to "
                f"{len(spec.features)} columns, {rows:,} rows",
                figure=1e6 * seconds / rows,
                unit="µs per row",
                side="at most",
                bar=_BAR_MICROSECONDS,
                rounds=rounds,
                details={
                    "encoded tensor, µs per row": round(1e6 * plain / rows, 3),
                    "a request of one row, µs": round(1e6 * single, 1),
                },
            )
        )
    return claims


def _median(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _spec() -> FitSpec:
    numbers = [
        {"name": f"number {index}", "kind": "number", "impute": 1.5,
         "steps": ["log1p", {"subtract": 2.0}, {"divide": 0.5}]}
        for index in range(_NUMBERS)
    ]  # fmt: skip
    words = [
        {"name": f"category {index}", "kind": "category", "unseen": "zeros", "missing": "zeros",
         "categories": [f"value number {code}" for code in range(count)]}
        for index, count in enumerate(_WORDS)
    ]  # fmt: skip
    return FitSpec.model_validate(
        {
            "model": {"name": "benchmark", "version": "1"},
            "classifier": {"output": "logit"},
            "inputs": [*numbers, *words],
            "protected_attributes": [{"name": "a", "column": "a", "groups": ["x", "y"]}],
        }
    )


def _raw_tensors(spec: FitSpec, rows: int) -> list[InputTensor]:
    rng = np.random.default_rng(0)
    tensors = []
    for raw in spec.inputs:
        if raw.kind == "number":
            values = rng.lognormal(1, 1, rows)
            values[rng.random(rows) < 0.05] = np.nan
            tensors.append(InputTensor(raw.name, "FP64", [rows], values.astype("<f8").tobytes()))
        else:
            names = ["", "something else", *raw.categories]
            texts = [str(text).encode() for text in rng.choice(names, rows)]
            tensors.append(InputTensor(raw.name, "BYTES", [rows], _with_lengths(texts)))
    return tensors


def _with_lengths(texts: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def _encoded_tensor(spec: FitSpec, rows: int) -> list[InputTensor]:
    width = len(spec.features)
    data = np.zeros((rows, width), "<f4").tobytes()
    return [InputTensor("features", "FP32", [rows, width], data)]


if __name__ == "__main__":
    report("Encoding raw inputs", measure)
