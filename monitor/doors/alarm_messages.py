"""Alarms as the REST door shows them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from monitor.drift import Alarm

__all__ = ["AlarmName", "AlarmReply", "alarm_reply"]


class AlarmReply(BaseModel):
    """An alarm of the drift watch that nobody has acknowledged."""

    detector: Literal["share", "change", "margin", "status"]
    attribute: str | None
    at_prediction: int
    cause: Literal["covariates", "treatment", "unclear"]


class AlarmName(BaseModel):
    """Which alarm is meant."""

    detector: Literal["share", "change", "margin", "status"]
    attribute: str | None = None


def alarm_reply(found: Alarm) -> AlarmReply:
    """What is said of an alarm."""
    return AlarmReply(
        detector=found.watcher.kind,
        attribute=found.watcher.attribute,
        at_prediction=found.at,
        cause=found.cause,
    )
