"""A folder that torch is told to use, and that is gone afterwards."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["private_folder"]


@contextmanager
def private_folder(variable: str) -> Iterator[str]:
    """A folder that nobody else can read, named by an environment variable while it is there."""
    before = os.environ.get(variable)
    with tempfile.TemporaryDirectory(prefix="evenhand-", ignore_cleanup_errors=True) as folder:
        os.environ[variable] = folder
        try:
            yield folder
        finally:
            if before is None:
                del os.environ[variable]
            else:
                os.environ[variable] = before
