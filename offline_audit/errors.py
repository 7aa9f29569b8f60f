"""What can go wrong in an audit, by situation.

    OfflineAuditError
    ├── LogNotFoundError         no log at that path or address
    ├── LogUnreadableError       an address that cannot be used, or a log that cannot be listed
    ├── ModelChoiceError         which model, or which version, is left open or is not there
    ├── SpanError                a span of time that is none
    ├── UnknownColumnError       a protected attribute or a column that the window does not have
    ├── EngineError              an engine that fails while it computes
    ├── AuditInputError          arrays, counts or options that a test cannot be run on
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


class UnknownColumnError(OfflineAuditError):
    """The window has no such protected attribute or column."""


class EngineError(OfflineAuditError):
    """The engine failed while it computed."""


class AuditInputError(OfflineAuditError):
    """What was given to a test is none of what it takes; the message says what and where."""


class ModelFailedError(OfflineAuditError):
    """The model gives no decision, whatever it is asked."""


class ModelUnreachableError(OfflineAuditError):
    """The endpoint is down, or too slow; what it has decided so far is kept."""


class DecisionCacheError(OfflineAuditError):
    """A file of decisions is another model's, is damaged, or cannot be read or written."""
