import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecordOutcomesRequest(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("request_id", "row", "label", "groups", "observed_at")
    class GroupsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    row: int
    label: int
    groups: _containers.ScalarMap[str, str]
    observed_at: _timestamp_pb2.Timestamp
    def __init__(self, request_id: _Optional[str] = ..., row: _Optional[int] = ..., label: _Optional[int] = ..., groups: _Optional[_Mapping[str, str]] = ..., observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RecordOutcomesResponse(_message.Message):
    __slots__ = ("recorded", "refusals")
    class Refusal(_message.Message):
        __slots__ = ("index", "reason")
        INDEX_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        index: int
        reason: str
        def __init__(self, index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    recorded: int
    refusals: _containers.RepeatedCompositeFieldContainer[RecordOutcomesResponse.Refusal]
    def __init__(self, recorded: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[RecordOutcomesResponse.Refusal, _Mapping]]] = ...) -> None: ...
