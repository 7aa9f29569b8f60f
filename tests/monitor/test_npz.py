"""Arrays are read as written; inconsistent files are rejected without allocating memory."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from monitor.npz import read_npz, write_npz

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False]), "c": np.empty((0, 3))}


def npy(*, shape: str, dtype: str = "<f8", content: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


def test_arrays_are_read_as_they_were_written():
    head, arrays = read_npz(write_npz({"ж": [1, None, 0.5]}, ARRAYS))
    assert head == {"ж": [1, None, 0.5]}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].shape, arrays[name].dtype) == (array.shape, array.dtype)
        assert (arrays[name] == array).all()
        assert arrays[name].flags.writeable


@pytest.mark.parametrize("shape", ["(10000000000000,)", "(3,)", "(-1,)", "(-1, -2)", "(1 << 70,)"])
def test_a_header_with_a_wrong_size_is_rejected_before_memory_is_allocated(shape):
    with pytest.raises(ValueError, match=r"size|header|malformed|unknown dimension"):
        read_npz(zipped(("a.npy", npy(shape=shape, content=bytes(16)))))


def test_a_compressed_member_is_rejected():
    bomb = npy(shape="(1000000,)", content=bytes(8_000_000))
    with pytest.raises(ValueError, match="compressed"):
        read_npz(zipped(("a.npy", bomb), compression=zipfile.ZIP_DEFLATED))


def test_members_that_share_their_bytes_are_rejected():
    """An entry of the directory takes 51 bytes, and many could point to the same large array."""
    data = bytearray(zipped(("a.npy", npy(shape="(1000,)", content=bytes(8_000)))))
    start, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry, trailer = bytes(data[start:end]), data[end:]
    trailer[8:12] = (500).to_bytes(2, "little") * 2
    trailer[12:16] = (500 * len(entry)).to_bytes(4, "little")
    with pytest.raises(ValueError, match="larger than the file"):
        read_npz(bytes(data[:start] + entry * 500 + trailer))


def test_a_header_that_is_not_an_object_is_rejected():
    buffer = io.BytesIO()
    np.savez(buffer, head=np.array("[1]"))
    with pytest.raises(TypeError, match="not a JSON object"):
        read_npz(buffer.getvalue())
