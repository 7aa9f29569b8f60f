"""Progress of long computations: a bar on a terminal, or a function of the caller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

__all__ = ["Progress", "Reporter", "reporting"]

# Called with what is being done, the steps done, and the steps in all.
Progress = Callable[[str, int, int], None]


class Reporter:
    """Counts the steps of a computation and reports them."""

    def __init__(self, show: Progress | None, total: int) -> None:
        self._show, self._total, self._done, self._task = show, total, 0, ""

    def doing(self, task: str) -> None:
        """Name the current task."""
        self._task = task
        self._report()

    def rows(self, done: int, total: int) -> None:
        """Report how many rows the model has decided."""
        self.doing(f"calling the model, {done:,} of {total:,} rows")

    def step(self, steps: int = 1) -> None:
        """Count steps as done."""
        self._done += steps
        self._report()

    def _report(self) -> None:
        if self._show is not None:
            self._show(self._task, min(self._done, self._total), self._total)


@contextmanager
def reporting(progress: Progress | Literal[True, False] | None, total: int) -> Iterator[Reporter]:
    """Report the steps of a computation while the context is open.

    Args:
        progress: Function to call; True for a bar on stderr, False for none, None for a bar if
            stderr is a terminal.
        total: Number of steps in all.
    """
    if callable(progress):
        yield Reporter(progress, total)
        return
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield Reporter(None, total)
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def show(what: str, done: int, steps: int) -> None:
            bar.update(task, description=what, completed=done, total=steps)

        yield Reporter(show, total)
