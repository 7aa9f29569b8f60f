"""Requests and responses as both transports hand them over, and the ids of requests."""

from __future__ import annotations

import secrets
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.errors import BadRequestError

__all__ = [
    "MAX_ID_LENGTH",
    "SUBJECT_PARAMETER",
    "InferRequest",
    "InferResponse",
    "InputTensor",
    "OutputTensor",
    "RequestIds",
    "checked_subject",
]

# A longer id does not fit into an exemplar of a metric.
MAX_ID_LENGTH = 100
# Request parameter with the person that all rows of a request are about.
SUBJECT_PARAMETER = "evenhand_subject"
_MAX_SUBJECT_LENGTH = 200
_REMEMBERED_IDS = 100_000


class InputTensor(NamedTuple):
    """A tensor as a client sent it.

    Attributes:
        name: Name that the client gave it.
        datatype: One of the protocol's datatypes.
        shape: Shape that the client stated.
        data: Raw bytes as the protocol lays them out, or a flat list of elements.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    data: bytes | Sequence[object]


class OutputTensor(NamedTuple):
    """A tensor of a response.

    Attributes:
        name: Name of the output.
        datatype: One of FP32, FP64 and BYTES.
        values: Elements in the tensor's shape; text for BYTES.
    """

    name: str
    datatype: str
    values: NDArray[np.float32] | NDArray[np.float64] | NDArray[np.object_]

    @property
    def raw(self) -> bytes:
        """Little-endian, row-major, without padding; BYTES elements with a length prefix."""
        if self.datatype != "BYTES":
            return self.values.tobytes()
        texts = [str(text).encode() for text in self.values.ravel()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)


class InferRequest(NamedTuple):
    """A request for predictions.

    Attributes:
        model: Name of the model.
        version: Version of the model; empty for whichever is served.
        id: The client's own id of the request; may be empty.
        inputs: Input tensors.
        outputs: Names of the requested outputs; empty for the classifier's own.
        subject: The client's id of the person; empty if it sent none. Recorded as a pseudonym only.
    """

    model: str
    version: str
    id: str
    inputs: Sequence[InputTensor]
    outputs: Sequence[str] = ()
    subject: str = ""


class InferResponse(NamedTuple):
    """The response to a request for predictions.

    Attributes:
        id: The client's id, or the generated one if the client sent none.
        outputs: Output tensors, in the order requested.
        parameters: Response parameters: verdict, action and scores, by parameter name.
    """

    id: str
    outputs: Sequence[OutputTensor]
    parameters: Mapping[str, str]


def checked_subject(value: object) -> str:
    """The subject of a request, from its parameter.

    Raises:
        BadRequestError: It is not a short text; the message does not contain it.
    """
    if isinstance(value, str) and 0 < len(value) <= _MAX_SUBJECT_LENGTH and value.isprintable():
        return value
    raise BadRequestError(
        f"parameter {SUBJECT_PARAMETER!r} must be a text of 1 to {_MAX_SUBJECT_LENGTH} printable "
        "characters"
    )


class RequestIds:
    """Keeps a client's id if it is usable and unique, and generates one otherwise.

    An id is not usable if it is empty, too long, holds control characters or quotes, or looks like
    a generated one. It is not unique if one of the last requests had it; ids are remembered by
    their hash, so memory is bounded.
    """

    def __init__(self, remembered: int = _REMEMBERED_IDS) -> None:
        self._prefix, self._count = secrets.token_hex(8), 0
        self._used: set[int] = set()
        self._order: deque[int] = deque()
        self._remembered = remembered

    def assign(self, client_id: str) -> str:
        """The client's id, or a generated one."""
        if self._is_usable(client_id):
            key = hash(client_id)
            if key not in self._used:
                self._remember(key)
                return client_id
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def _is_usable(self, client_id: str) -> bool:
        return (
            0 < len(client_id) <= MAX_ID_LENGTH
            and client_id.isprintable()
            # Quotes would break the exposition format of metrics, which hold ids as exemplars.
            and not set(client_id) & {'"', "\\"}
            and not client_id.startswith(self._prefix)
        )

    def _remember(self, key: int) -> None:
        self._used.add(key)
        self._order.append(key)
        if len(self._order) > self._remembered:
            self._used.remove(self._order.popleft())
