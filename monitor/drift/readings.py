"""What a drift watch shows."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.drift.share import Band

__all__ = ["Evidence", "FlipShare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipShare:
    """The flip share of one attribute.

    Attributes:
        n: Predictions since the start, or since its alarm was last acknowledged.
        share: Their mean; None without any.
        band: Holds the average flip share of these predictions at all moments at once, with
            probability 1 − level.
        rolling_n: Predictions in the last blocks.
        rolling_share: Their mean.
        rolling_band: The same for the window that began with the oldest of these blocks: each
            window's band holds at the stated level, not all windows' at once.
        baseline: The band of the baseline.
    """

    n: int
    share: float | None
    band: Band
    rolling_n: int
    rolling_share: float | None
    rolling_band: Band
    baseline: Band

    @property
    def separated(self) -> bool:
        """Whether the band lies wholly above the baseline's."""
        return self.band.low > self.baseline.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a change detector holds against the stream being as before.

    Attributes:
        log_sr: Log of the Shiryaev–Roberts statistic; an alarm at the log of the run length.
        log_e_value: Log of the test martingale since the start or the last acknowledgement.
        unusable: Predictions since then with a score that was not a number.
    """

    log_sr: float
    log_e_value: float
    unusable: int
