"""Time and memory of `fit`, up to a million rows of 95 columns."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.claims import Claim, Say, Scale, report

# Runs in a process of its own, so that its peak memory can be measured.
_FIT = """
import json, resource, sys, tempfile, time
from pathlib import Path
import numpy as np
import torch
from monitor import Decision, Feature, FitData, FitSpec, Model, OneHotGroup, fit
from monitor.fitting.spec import Output, ProtectedColumn

rows = int(sys.argv[1])
rng = np.random.default_rng(1)
sex = rng.integers(2, size=rows).astype(np.int8)
features = np.zeros((rows, 95), np.float32)
features[:, :15] = rng.normal(size=(rows, 15), scale=2).astype(np.float32)
features[:, :5] += 0.5 * sex[:, None]
for group in range(10):
    odds = np.linspace(0, 0.1 * group, 8)
    choice = (rng.gumbel(size=(rows, 8)) + sex[:, None] * odds).argmax(1)
    features[np.arange(rows), 15 + 8 * group + choice] = 1
spec = FitSpec(
    model=Model(name="wide", version="1"),
    classifier=Output(output="logit"),
    features=(
        *(Feature(name=f"n{i}", kind="numeric") for i in range(15)),
        *(Feature(name=f"c{g}={c}", kind="onehot") for g in range(10) for c in range(8)),
    ),
    one_hot_groups=tuple(
        OneHotGroup(name=f"c{g}", features=tuple(f"c{g}={c}" for c in range(8))) for g in range(10)
    ),
    protected_attributes=(ProtectedColumn(name="sex", groups=("man", "woman"), column="sex"),),
    decision=Decision(),
)
torch.manual_seed(0)
classifier = torch.nn.Sequential(torch.nn.Linear(95, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
started = time.perf_counter()
with tempfile.TemporaryDirectory() as folder:
    data = FitData(features=features, groups={"sex": sex})
    fit(classifier, data, spec, Path(folder, "bundle"), compiled=False)
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": seconds, "peak": peak}))
"""


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Time and peak memory of one fit, with the data in memory."""
    rows, minutes = scale.pick(full=(1_000_000, 15), quick=(50_000, 3), smoke=(2_000, 3))
    say(f"{rows:,} rows of 95 columns")
    command = [sys.executable, "-c", _FIT, str(rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return [
        Claim(
            claim=f"fit {rows:,} rows of 95 columns",
            figure=result["seconds"] / 60,
            unit="minutes",
            side="at most",
            bar=minutes,
            rounds=1,
        ),
        Claim(
            claim=f"peak memory of the fit, {rows:,} rows",
            figure=result["peak"],
            unit="GiB",
            side="at most",
            bar=6,
            rounds=1,
        ),
    ]


if __name__ == "__main__":
    report("Fitting", measure)
