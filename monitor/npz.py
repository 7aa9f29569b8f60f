"""Arrays and a JSON head as the bytes of an npz file, read with no trust in them."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "read_npz", "write_npz"]

Arrays = dict[str, NDArray[Any]]


def write_npz(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """As bytes that `read_npz` reads."""
    buffer = io.BytesIO()
    np.savez(buffer, head=np.array(json.dumps(head)), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_npz(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """The head, and all arrays by name.

    Nothing is unpickled or decompressed, and the arrays together take no more room than `data`,
    whatever it says of their sizes. What the head holds and which arrays there are is for the
    caller to check.

    Raises:
        Exception: They cannot be read; damaged bytes make zipfile, numpy and json raise nearly
            anything, so a caller has to catch all of it.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = file.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("a part is compressed")
        if sum(member.file_size for member in members) > len(data):
            raise ValueError("its parts are larger than the whole")
        arrays = {m.filename.removesuffix(".npy"): _array(file.read(m)) for m in members}
    head = json.loads(str(arrays.pop("head")))
    if not isinstance(head, dict):
        raise TypeError("its head is no object")
    return head, arrays


def _array(content: bytes) -> NDArray[Any]:
    """An array of the bytes of an npy file, which have to be as many as its header says."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is of another npy version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError("an array is not of the size that its header says")
    stream.seek(0)
    found: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return found
