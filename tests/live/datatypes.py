"""Rows for every datatype of the protocol, and a function that runs a peer's script on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["rows_for", "run_peer"]


def rows_for(rows: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Rows `[n, d]` that each datatype can hold without loss."""
    rng = np.random.default_rng(3)
    shape = rows.shape
    integers = {
        f"{kind}{8 * size}": rng.integers(low, high, shape, f"{kind[0].lower()}{size}")
        for kind, low in (("INT", -100), ("UINT", 0))
        for size, high in ((1, 100), (2, 30_000), (4, 200_000), (8, 200_000))
    }
    return {
        "BOOL": rng.random(shape) < 0.5,
        **integers,
        "FP16": (rows / 100).astype(np.float16),
        # numpy has no bfloat16: these are float32 values that bfloat16 represents exactly.
        "BF16": torch.from_numpy(rows / 100).bfloat16().float().numpy(),
        "FP32": rows,
        "FP64": rows.astype(np.float64),
        "BYTES": rows.astype(np.float64),
    }


def run_peer(
    python: Path,
    script: str,
    addresses: Sequence[str],
    rows: dict[str, NDArray[Any]],
    names: Sequence[str],
    folder: Path,
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Run a peer's script of this directory; return the scores and facts that it wrote."""
    input_file, output_file = folder / "input.npz", folder / "output.npz"
    np.savez(input_file, names=list(names), **rows)  # type: ignore[arg-type]
    command: list[str | Path] = [
        python,
        Path(__file__).with_name(script),
        *addresses,
        input_file,
        output_file,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(output_file) as scores:
        return dict(scores), json.loads(output_file.with_suffix(".json").read_text())
