"""Arrays with a JSON header as npz files, and a reader for untrusted files.

Serves the transport maps, the baseline, the drift reference and the state of the drift watch.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.errors import first_line

__all__ = ["Arrays", "damaged_file", "read_npz", "write_npz"]

Arrays = dict[str, NDArray[Any]]


def write_npz(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Contents of an npz file with a header and arrays, uncompressed."""
    buffer = io.BytesIO()
    np.savez(buffer, head=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_npz(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays, by name, of an npz file.

    Nothing is unpickled or decompressed, and the arrays take no more memory than `data`, whatever
    sizes the file states. The caller has to check the contents of the header and the arrays.

    Raises:
        Exception: The file is damaged. zipfile, numpy and json raise nearly any exception for
            damaged bytes, so a caller has to catch all of them.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = file.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("a member is compressed")
        if sum(member.file_size for member in members) > len(data):
            raise ValueError("the members are larger than the file")
        arrays = {m.filename.removesuffix(".npy"): _array(file.read(m)) for m in members}
    header = json.loads(str(arrays.pop("head")))
    if not isinstance(header, dict):
        raise TypeError("the header is not a JSON object")
    return header, arrays


def damaged_file(name: str, cause: Exception | str) -> str:
    """Message for a damaged file of a bundle."""
    if isinstance(cause, Exception):
        cause = first_line(cause) + (" is missing" if isinstance(cause, KeyError) else "")
    return f"{name} is damaged ({cause}); run `evenhand fit` again"


def _array(content: bytes) -> NDArray[Any]:
    """Array of an npy file, whose length must match its header."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array has another npy version than 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError("the size of an array differs from its npy header")
    stream.seek(0)
    array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array
