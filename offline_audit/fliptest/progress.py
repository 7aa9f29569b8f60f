"""Progress of long work: a bar where someone watches, or a function of the caller's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

__all__ = ["ShowProgress", "Watch", "watched"]

# Called as work goes on: what is being done, steps done, steps in all.
ShowProgress = Callable[[str, int, int], None]


class Watch:
    """Counts steps, and tells of them."""

    def __init__(self, show: ShowProgress | None, total: int) -> None:
        self._show, self._total, self._done, self._what = show, total, 0, ""

    def on(self, what: str) -> None:
        """What is being done now."""
        self._what = what
        self._tell()

    def rows(self, done: int, total: int) -> None:
        """The model has been asked about so many."""
        self.on(f"asking the model, {done:,} of {total:,} rows")

    def step(self, steps: int = 1) -> None:
        """Some of it is done."""
        self._done += steps
        self._tell()

    def _tell(self) -> None:
        if self._show is not None:
            self._show(self._what, min(self._done, self._total), self._total)


@contextmanager
def watched(progress: ShowProgress | Literal[True, False] | None, total: int) -> Iterator[Watch]:
    """A watch over so many steps.

    Args:
        progress: A function that is told; True for a bar on stderr, False for none; None for a bar
            if stderr is a terminal.
        total: Steps in all.
    """
    if callable(progress):
        yield Watch(progress, total)
        return
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield Watch(None, total)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("FlipTest", total=total)

        def show(what: str, done: int, steps: int) -> None:
            bar.update(task, description=what, completed=done, total=steps)

        yield Watch(show, total)
