"""Outcomes as messages of both transports."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from monitor.errors import BadRequestError
from monitor.traffic.outcomes import Outcome, Refusal
from monitor.wire import evenhand_pb2 as own

__all__ = ["OutcomesBody", "OutcomesReply", "outcomes_message", "read_outcomes"]

_MOST = 10_000


class OutcomeBody(BaseModel):
    """The outcome of one row of a request: a label, groups, or both."""

    model_config = ConfigDict(strict=True, extra="forbid")

    request_id: str = Field(description="Request id, as returned in `evenhand_request_id`.")
    row: int = Field(0, description="Row of the request, counted from 0.")
    label: int | None = Field(None, description="The true class, 0 or 1.")
    groups: dict[str, str] = Field({}, description="Group by protected attribute.")
    observed_at: AwareDatetime | None = Field(
        None, description="Time of the observation; time of arrival if absent."
    )


class OutcomesBody(BaseModel):
    """Outcomes of predictions."""

    model_config = ConfigDict(strict=True, extra="forbid")

    outcomes: Annotated[list[OutcomeBody], Field(max_length=_MOST)]

    @property
    def read(self) -> list[Outcome]:
        """The outcomes as the log records them."""
        return [Outcome(**dict(outcome)) for outcome in self.outcomes]


class RefusalReply(BaseModel):
    """An outcome that was not recorded, while the others were."""

    index: int
    reason: str


class OutcomesReply(BaseModel):
    """Number of outcomes recorded, and the reasons for those that were not."""

    recorded: int
    refusals: list[RefusalReply]

    @classmethod
    def of(cls, recorded: int, refusals: Sequence[Refusal]) -> OutcomesReply:
        """What was recorded, and what was not."""
        refused = [RefusalReply(index=index, reason=reason) for index, reason in refusals]
        return cls(recorded=recorded, refusals=refused)


def read_outcomes(request: own.RecordOutcomesRequest) -> list[Outcome]:
    """The outcomes of a message.

    Raises:
        BadRequestError: There are too many, or a time is invalid.
    """
    if len(request.outcomes) > _MOST:
        raise BadRequestError(f"the message holds more than {_MOST} outcomes")
    return [
        Outcome(
            request_id=outcome.request_id,
            row=outcome.row,
            label=outcome.label if outcome.HasField("label") else None,
            groups=dict(outcome.groups),
            observed_at=_observed(outcome, index),
        )
        for index, outcome in enumerate(request.outcomes)
    ]


def outcomes_message(recorded: int, refusals: Sequence[Refusal]) -> own.RecordOutcomesResponse:
    """What was recorded, and what was not."""
    kind = own.RecordOutcomesResponse.Refusal
    refused = [kind(index=index, reason=reason) for index, reason in refusals]
    return own.RecordOutcomesResponse(recorded=recorded, refusals=refused)


def _observed(outcome: own.Outcome, index: int) -> dt.datetime | None:
    if not outcome.HasField("observed_at"):
        return None
    try:
        return outcome.observed_at.ToDatetime(dt.UTC)
    except (ValueError, OverflowError):
        raise BadRequestError(f"outcomes.{index}.observed_at is not a valid time") from None
