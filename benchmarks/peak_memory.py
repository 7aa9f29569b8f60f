"""The most memory that a process has held."""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_gib"]


def peak_gib() -> float:
    """Of this program alone: the peak that getrusage(2) tells of begins with the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) / 2**20
