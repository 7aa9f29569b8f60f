"""Cost per decision and memory of Clemont and of evenhand on one stream; see `benchmarks.clemont`.

Both process the stream in slices, in alternating order, each on one thread while the other waits.
Times are CPU times. Clemont runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["ClemontProcess", "Cost", "Slice", "compare_cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a stream as one monitor processed it.

    Attributes:
        seconds: CPU seconds.
        mib: Resident memory afterwards.
        alarms: Indices of the decisions with an alarm.
    """

    seconds: float
    mib: float
    alarms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU time and memory of one monitor over a stream.

    Attributes:
        size: Number of decisions in a slice.
        slices: Slices in the order of the stream.
    """

    size: int
    slices: tuple[Slice, ...]

    @property
    def decisions(self) -> int:
        """Number of decisions."""
        return self.size * len(self.slices)

    @property
    def microseconds(self) -> float:
        """CPU microseconds per decision."""
        return sum(part.seconds for part in self.slices) / self.decisions * 1e6

    @property
    def last_microseconds(self) -> float:
        """CPU microseconds per decision in the last tenth of the stream."""
        last = self.slices[-max(1, len(self.slices) // 10) :]
        return sum(part.seconds for part in last) / (self.size * len(last)) * 1e6

    @property
    def growth(self) -> float:
        """Growth of resident memory in MiB after the first slice, which fills caches."""
        return self.slices[-1].mib - self.slices[0].mib

    @property
    def late_growth(self) -> float:
        """Growth in the second half of the stream relative to that in the first."""
        middle = self.slices[len(self.slices) // 2].mib
        early = middle - self.slices[0].mib
        return (self.slices[-1].mib - middle) / early if early > 0 else float("nan")

    @property
    def alarms(self) -> NDArray[np.bool_]:
        """Whether each decision had an alarm, `[n]`."""
        alarms = np.zeros(self.decisions, dtype=bool)
        alarms[[index for part in self.slices for index in part.alarms]] = True
        return alarms


class ClemontProcess:
    """Clemont with one backend, in its own environment."""

    def __init__(
        self,
        python: Path,
        backend: str,
        epsilon: float,
        rows: NDArray[np.float32],
        decisions: NDArray[np.bool_],
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        stream = Path(self._folder.name, "stream.npz")
        np.savez(stream, rows=rows, decisions=decisions)
        script = Path(__file__).with_name("clemont_peer.py")
        # -P, since the script's folder has a module of Clemont's name.
        command = [str(python), "-P", str(script), str(stream), backend, str(epsilon)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()

    def observe(self, count: int) -> Slice:
        """Observe the next decisions."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("Clemont's process ended; its error is printed above")
        reply = json.loads(line)
        return Slice(seconds=reply["seconds"], mib=reply["mib"], alarms=tuple(reply["alarms"]))


def compare_cost(
    clemont: ClemontProcess,
    score: Callable[[torch.Tensor], object],
    rows: torch.Tensor,
    *,
    size: int,
) -> tuple[Cost, Cost]:
    """Costs of Clemont and of evenhand on the rows `[n, d]`, of which a remainder is left out.

    Args:
        clemont: Clemont, with a stream of as many rows.
        score: Scores one row `[1, d]`.
        rows: Inputs as the classifier gets them.
        size: Number of decisions in a slice.
    """
    theirs: list[Slice] = []
    ours: list[Slice] = []
    for number in range(len(rows) // size):
        part = rows[number * size : (number + 1) * size]
        if number % 2:
            ours.append(_scored(score, part))
        theirs.append(clemont.observe(size))
        if not number % 2:
            ours.append(_scored(score, part))
    return Cost(size=size, slices=tuple(theirs)), Cost(size=size, slices=tuple(ours))


def _scored(score: Callable[[torch.Tensor], object], rows: torch.Tensor) -> Slice:
    started = time.process_time()
    for row in rows.split(1):
        score(row)
    return Slice(seconds=time.process_time() - started, mib=_resident_mib())


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
