"""Tensors as raw bytes, the way both doors send them."""

from __future__ import annotations

import struct

from monitor.call import OutputTensor

__all__ = ["raw_bytes"]


def raw_bytes(tensor: OutputTensor) -> bytes:
    """Little-endian, row-major, without padding; BYTES with each element's length before it."""
    if tensor.datatype != "BYTES":
        return tensor.values.tobytes()
    texts = [str(text).encode() for text in tensor.values.ravel()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
