"""Clemont on a stream of decisions, in Clemont's own environment; see `benchmarks.clemont`.

`python -P clemont_peer.py FILE BACKEND EPSILON`: FILE is an npz with `rows` [n, d], scaled, and
`decisions` [n]. For each line with a number of decisions, observes as many and prints a line of
JSON: CPU seconds, resident memory in MiB, and the indices of the decisions with an alarm.
"""

import json
import os
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TextIO

import numpy as np
import pandas as pd
from clemont.backends.base import BaseBackend
from clemont.backends.faiss import BruteForce
from clemont.backends.kdtree import KdTree
from clemont.backends.snn import Snn

DECISION = "decision"


def backend(name: str, frame: pd.DataFrame, epsilon: float) -> BaseBackend:
    """A backend at its defaults, on one thread."""
    if name == "BruteForce":
        return BruteForce(frame, DECISION, epsilon, nthreads=1)
    return {"KdTree": KdTree, "Snn": Snn}[name](frame, DECISION, epsilon)


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Observe as many decisions as each line says."""
    replies = sys.stdout
    # The kd-tree and SNN backends print their progress.
    with Path(os.devnull).open("w") as silence, redirect_stdout(silence):
        observe(replies)


def observe(replies: TextIO) -> None:
    """Read numbers of decisions, and write a reply to each."""
    with np.load(sys.argv[1]) as file:
        table = np.column_stack([file["decisions"], file["rows"]]).astype(np.float32)
    columns = pd.Index([DECISION, *(f"c{number}" for number in range(table.shape[1] - 1))])
    # The sample tells the backend the columns and the two decisions.
    both = [int(np.argmax(table[:, 0] == decision)) for decision in (0, 1)]
    monitor = backend(sys.argv[2], pd.DataFrame(table[both], columns=columns), float(sys.argv[3]))
    first = 0
    for line in sys.stdin:
        last = first + int(line)
        seconds, alarms = 0.0, []
        for index in range(first, last):
            row = pd.Series(table[index].copy(), index=columns)
            started = time.process_time()
            found = monitor.observe(row, row_id=index)
            seconds += time.process_time() - started
            if len(found):
                alarms.append(index)
        reply = {"seconds": seconds, "mib": resident_mib(), "alarms": alarms}
        print(json.dumps(reply), file=replies, flush=True)
        first = last


if __name__ == "__main__":
    main()
