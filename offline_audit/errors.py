"""Errors of the audits, by situation.

    OfflineAuditError
    ├── LogNotFoundError         no log at the path or address
    ├── LogUnreadableError       an address cannot be used, or a log cannot be listed
    ├── ModelChoiceError         no model is named and the log has several, or no such model
    ├── SpanError                invalid span of time
    ├── EngineError              an engine failed while it ran a query
    ├── AuditInputError          invalid arrays, counts or options
    │   └── UnknownColumnError   no such protected attribute or column
    ├── ModelFailedError         the model returned no decision for any row
    ├── ModelUnreachableError    an endpoint is down or too slow, and the retries are used up
    └── DecisionCacheError       a cache of decisions belongs to another model, or is unusable

Missing, corrupt and old files of a log are not errors: the window's provenance reports them.
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
    """Root of the errors that a caller of the audits can cause and fix."""


class LogNotFoundError(OfflineAuditError):
    """There is no log at the path or address."""


class LogUnreadableError(OfflineAuditError):
    """The address of a log cannot be used, or its files cannot be listed."""


class ModelChoiceError(OfflineAuditError):
    """No model is named and the log has several, or there is no such model or version."""


class SpanError(OfflineAuditError):
    """A time has no time zone, or the end of a span is not after its start."""


class EngineError(OfflineAuditError):
    """The engine failed while it ran a query."""


class AuditInputError(OfflineAuditError):
    """Invalid input of an audit; the message names the argument and says what to do."""


class UnknownColumnError(AuditInputError):
    """There is no such protected attribute or column."""


class ModelFailedError(OfflineAuditError):
    """The model returned no decision for any row."""


class ModelUnreachableError(OfflineAuditError):
    """The endpoint is down or too slow; decisions received so far are kept."""


class DecisionCacheError(OfflineAuditError):
    """A cache of decisions belongs to another model, is damaged, or cannot be read or written."""
