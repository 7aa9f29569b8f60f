"""Peak memory of this process.

A module of its own, so that processes that measure memory import nothing else.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_gib"]


def peak_gib() -> float:
    """Peak resident memory in GiB; unlike that of getrusage(2), it excludes the parent process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) / 2**20
