"""Progress of long computations: a bar on a terminal, or a callback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

__all__ = ["Progress", "Reporter", "reporting"]

# Called with the current task, the number of steps done and the total number of steps.
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
        """Report the number of rows that have a decision of the model."""
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
        progress: Callback; True for a bar on stderr, False for none, None for a bar if stderr is a
            terminal.
        total: Total number of steps.
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

        def show(current: str, done: int, steps: int) -> None:
            bar.update(task, description=current, completed=done, total=steps)

        yield Reporter(show, total)
