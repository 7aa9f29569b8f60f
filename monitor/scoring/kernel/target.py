"""What a compiled pass was made for: a torch version, and what a processor must be able to do."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass

import torch

__all__ = ["FOLDER", "LEVELS", "Target", "fitting_targets"]

FOLDER = "kernel/"
# Each level runs what those before it run; beside it, the compiler's name for it.
LEVELS = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}
_SUFFIX = ".aoti"


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Where a compiled pass runs.

    Attributes:
        torch: Version of torch, without what names a build of it.
        level: One of `LEVELS`.
    """

    torch: str
    level: str

    @classmethod
    def here(cls) -> Target | None:
        """What this process could run; None on a processor that nothing is compiled for."""
        level = torch.backends.cpu.get_cpu_capability().lower()
        if platform.machine() not in ("x86_64", "AMD64") or level not in LEVELS:
            return None
        return cls(torch_version(), level)

    @classmethod
    def of_file(cls, name: str) -> Target | None:
        """From a file's name in a bundle; None if it is no compiled pass."""
        if not (name.startswith(FOLDER) and name.endswith(_SUFFIX)):
            return None
        version, _, level = name[len(FOLDER) : -len(_SUFFIX)].rpartition("-")
        found = cls(version.removeprefix("torch-"), level)
        return found if found.file == name else None

    @property
    def file(self) -> str:
        """The file's name in a bundle."""
        return f"{FOLDER}torch-{self.torch}-{self.level}{_SUFFIX}"

    def runs_on(self, machine: Target) -> bool:
        """Whether a machine can run what was made for this target."""
        order = list(LEVELS)
        return (
            self.torch == machine.torch
            and self.level in LEVELS
            and order.index(self.level) <= order.index(machine.level)
        )


def torch_version() -> str:
    """Version of torch without what names a build of it, as in 2.13.0+cpu."""
    return torch.__version__.partition("+")[0]


def fitting_targets(files: Iterable[str], machine: Target) -> list[Target]:
    """Of a bundle's files the compiled passes that a machine can run, the best one first."""
    found = [target for name in files if (target := Target.of_file(name)) is not None]
    order = list(LEVELS)
    able = [target for target in found if target.runs_on(machine)]
    return sorted(able, key=lambda target: order.index(target.level), reverse=True)
