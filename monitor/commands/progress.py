"""Progress bars on the terminal, for `evenhand fit` and `evenhand demo`."""

from __future__ import annotations

from rich.progress import Progress, TaskID

__all__ = ["ProgressBars"]


class ProgressBars:
    """One progress bar per step."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, step: str, done: int, total: int) -> None:
        """Update the bar of a step."""
        if step not in self.tasks:
            self.tasks[step] = self.progress.add_task(step)
        self.progress.update(self.tasks[step], completed=done, total=total)
