"""What can go wrong in an audit, by situation.

    OfflineAuditError
    ├── LogNotFoundError         no log at that path or address
    ├── LogUnreadableError       an address that cannot be used, or a log that cannot be listed
    ├── ModelChoiceError         which model, or which version, is left open or is not there
    ├── SpanError                a span of time that is none
    ├── EngineError              an engine that fails while it computes
    ├── AuditInputError          arrays, counts or options that an audit cannot use
    │   └── UnknownColumnError   no such protected attribute or column
    ├── ModelFailedError         a model that gives no decision, whatever it is asked
    ├── ModelUnreachableError    an endpoint that is down, or too slow, for longer than is waited
    └── DecisionCacheError       a cache of decisions that is another model's, or cannot be used

A log with missing, corrupt or old files is none of these: its window says so in its provenance.
"""

from __future__ import annotations

__all__ = [
    "AuditInputError",
    "DecisionCacheError",
    "EngineError",
    "LogNotFoundError",
    "LogUnreadableError",
    "ModelChoiceError",
    "ModelFailedError",
    "ModelUnreachableError",
    "OfflineAuditError",
    "SpanError",
    "UnknownColumnError",
]


class OfflineAuditError(Exception):
    """Root of the errors that a user of the audits can cause and mend."""


class LogNotFoundError(OfflineAuditError):
    """There is no log at the path or address."""


class LogUnreadableError(OfflineAuditError):
    """The address of a log cannot be used, or its files cannot be listed."""


class ModelChoiceError(OfflineAuditError):
    """The log holds several models and none was named, or not the one that was."""


class SpanError(OfflineAuditError):
    """A span of time has no time zone, or ends before it begins."""


class EngineError(OfflineAuditError):
    """The engine failed while it computed."""


class AuditInputError(OfflineAuditError):
    """Invalid input of an audit; the message says which argument, and what to do."""


class UnknownColumnError(AuditInputError):
    """There is no such protected attribute or column."""


class ModelFailedError(OfflineAuditError):
    """The model gives no decision, whatever it is asked."""


class ModelUnreachableError(OfflineAuditError):
    """The endpoint is down, or too slow; what it has decided so far is kept."""


class DecisionCacheError(OfflineAuditError):
    """A file of decisions is another model's, is damaged, or cannot be read or written."""
