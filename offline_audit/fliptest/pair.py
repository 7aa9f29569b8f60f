"""Two groups of a FlipTest, both ways: maps, flipsets, evidence, explanation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scipy import stats

from offline_audit.fliptest.direction import FlipDirection
from offline_audit.fliptest.flipset import DecidedRows, Decides, Flipset, Side, counterparts_of
from offline_audit.fliptest.identification import Identification, identify
from offline_audit.fliptest.marginals import flipset_marginals
from offline_audit.fliptest.options import Options
from offline_audit.fliptest.resampling import (
    Resampled,
    bootstrap,
    net_estimate,
    null_sizes,
    share_estimate,
)
from offline_audit.fliptest.sample import pair_warnings
from offline_audit.fliptest.subgroup import name_subgroup
from offline_audit.fliptest.transparency import transparency_report
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.quantile import FAMILY_LEVEL
from offline_audit.maps.transport_map import SparseMethod
from offline_audit.maps.validation import ValidatedMap, fit_validated
from offline_audit.progress import Reporter
from offline_audit.rendering import count, percent

__all__ = ["Pair", "pair_steps", "rate_mismatch", "unseen_share"]

Two = tuple[FlipDirection, FlipDirection]

# Steps of a pair beside its refits: fitting, validating, identifying, explaining.
_STEPS = 4
# Largest difference of the transported rows' rate from the target's, beyond noise.
_RATE = 0.05
_SIDES: tuple[Side, Side] = ("advantaged", "disadvantaged")


def pair_steps(options: Options) -> int:
    """Number of steps of one pair."""
    return _STEPS + options.n_resamples + options.n_bootstrap


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Members of two groups, within a label.

    Attributes:
        names: Of the groups.
        label: None for all.
        people: Members of each whose decision is known.
        columns: What the columns are.
        model: DecidedRows about counterparts.
        options: What the test was asked to do.
    """

    names: tuple[str, str]
    label: int | None
    people: tuple[DecidedRows, DecidedRows]
    columns: Columns
    model: Decides
    options: Options

    def blank(self, reason: str | None = None) -> Two:
        """Both directions before anything is known."""
        reason = self._too_few() if reason is None else reason
        one, other = (
            FlipDirection(
                source=self.names[here],
                target=self.names[1 - here],
                label=self.label,
                rows=(len(self.people[here]), len(self.people[1 - here])),
                rates=(self._rate(here), self._rate(1 - here)),
                reason=reason,
            )
            for here in (0, 1)
        )
        return one, other

    def stages(self, blank: Two, reporter: Reporter) -> Iterator[Two]:
        """Both directions, each time with more known of them than in a blank."""
        if blank[0].reason is not None:
            reporter.step(pair_steps(self.options))
            return
        reporter.doing(f"{' and '.join(self.names)}: maps")
        fitted = self._fit(0, reporter), self._fit(1, reporter)
        reporter.step()
        flipsets, left = zip(
            *(
                counterparts_of(
                    self.people[d], fitted[d].map, self.model, self.options.n_counterparts
                )
                for d in (0, 1)
            ),
            strict=True,
        )
        reporter.step()
        found = self._shared(blank, fitted, flipsets, left, (None, None))
        yield found
        errors = self._errors(fitted, reporter)
        found = self._shared(blank, fitted, flipsets, left, errors)
        yield found
        found = self._against_chance(found, reporter)
        yield found
        reporter.doing(f"{' and '.join(self.names)}: identification")
        found = self._identified(found)
        reporter.step()
        yield found
        if self.options.explain:
            reporter.doing(f"{' and '.join(self.names)}: explanation")
            found = self._explained(found[0]), self._explained(found[1])
        reporter.step()
        yield found

    @property
    def _scaling(self) -> Scaling:
        here, there = (group.features for group in self.people)
        return Scaling.of(here, there, self.columns)

    def _rate(self, place: int) -> float | None:
        group = self.people[place]
        return float(group.decisions.mean()) if len(group) >= self.options.smallest_cell else None

    def _too_few(self) -> str | None:
        least = self.options.smallest_group
        short = [
            f"{name} has {count(len(group), 'person', 'people')}"
            for name, group in zip(self.names, self.people, strict=True)
            if len(group) < least
        ]
        return f"{' and '.join(short)}; {least} are needed." if short else None

    def _fit(self, here: int, reporter: Reporter) -> ValidatedMap:
        def tell(done: int, total: int) -> None:
            reporter.doing(
                f"{' and '.join(self.names)}: map {here + 1} of 2, {done:,} of {total:,} steps"
            )

        source, target = self.people[here].features, self.people[1 - here].features
        return fit_validated(
            source, target, self.columns, self.options.method, seed=self.options.seed, progress=tell
        )

    def _shared(
        self,
        blank: Two,
        fitted: tuple[ValidatedMap, ValidatedMap],
        flipsets: tuple[Flipset, ...],
        left: tuple[int, ...],
        errors: tuple[Resampled | None, Resampled | None],
    ) -> Two:
        one, other = (
            self._estimated(blank[d], fitted[d], flipsets[d], left[d], errors[d], d) for d in (0, 1)
        )
        return one, other

    def _estimated(
        self,
        blank: FlipDirection,
        fitted: ValidatedMap,
        flipset: Flipset,
        left: int,
        errors: Resampled | None,
        here: int,
    ) -> FlipDirection:
        """Shares with their intervals; a map that fails its validation is no evidence."""
        names = blank.source, blank.target
        groups = self.people[here], self.people[1 - here]
        warnings = pair_warnings(*groups, self.columns, names, self.options.smallest_cell)
        if left:
            few = self.options.smallest_cell
            many = count(left, "person", "people") if left >= few else f"fewer than {few} people"
            warnings.append(f"Left out: {many} whose counterpart got no decision.")
        if errors is None:
            warnings.append("Intervals hold the map to be known: it was not fitted again.")
        if not len(flipset):
            return replace(blank, reason="no counterpart got a decision.", warnings=(*warnings,))
        shares = {side: flipset.share(side) for side in _SIDES}
        error = {side: None if errors is None else getattr(errors, side) for side in _SIDES}
        one, other = (share_estimate(shares[s], error[s], len(flipset)) for s in _SIDES)
        return replace(
            blank,
            advantaged=one,
            disadvantaged=other,
            gross=share_estimate(
                flipset.gross, None if errors is None else errors.gross, len(flipset)
            ),
            net=net_estimate(flipset, errors),
            validation=fitted.validation,
            reason=fitted.rejection
            or rate_mismatch(flipset, self.people[1 - here])
            or self._untested(),
            smallest_detectable_effect=self._detectable(None if errors is None else errors.gross),
            warnings=tuple(warnings),
            flipset=flipset,
        )

    def _untested(self) -> str | None:
        if self.options.n_resamples:
            return None
        name = self.options.method.name
        return f"it was not held against chance: {name} was not fitted to permuted groups."

    def _detectable(self, error: float | None) -> float | None:
        """Smallest gross share that would be shown four times in five."""
        if not isinstance(self.options.method, SparseMethod):
            return None if error is None else float((1.645 + 0.842) * error)
        first, second = map(len, self.people)
        return unseen_share(first, second, len(self.columns.variables))

    def _errors(
        self, fitted: tuple[ValidatedMap, ValidatedMap], reporter: Reporter
    ) -> tuple[Resampled | None, Resampled | None]:
        if self.options.n_bootstrap < 2:
            reporter.step(self.options.n_bootstrap)
            return None, None
        reporter.doing(f"{' and '.join(self.names)}: intervals")
        return bootstrap(
            *self.people,
            (fitted[0].map, fitted[1].map),
            self.options.method,
            self.columns,
            self.model,
            n_bootstrap=self.options.n_bootstrap,
            seed=self.options.seed,
            tick=reporter.step,
        )

    def _against_chance(self, found: Two, reporter: Reporter) -> Two:
        if not self.options.n_resamples:
            return found
        # Where nothing was found, nothing is as large.
        one, other = (math.inf if each.gross is None else each.gross.value for each in found)
        reporter.doing(f"{' and '.join(self.names)}: permuted groups")
        nulls = null_sizes(
            *self.people,
            self.options.method,
            self.columns,
            self.model,
            (one, other),
            n_resamples=self.options.n_resamples,
            seed=self.options.seed,
            tick=reporter.step,
        )
        first, second = (
            each if each.gross is None else replace(each, null=null)
            for each, null in zip(found, nulls, strict=True)
        )
        return first, second

    def _identified(self, found: Two) -> Two:
        scaling, cost, seed = self._scaling, self.options.method.cost, self.options.seed
        one = identify(*self.people, scaling, cost, seed=seed)
        other = identify(*self.people[::-1], scaling, cost, seed=seed)
        return self._with(found[0], one), self._with(found[1], other)

    def _with(self, each: FlipDirection, found: Identification) -> FlipDirection:
        warnings = each.warnings
        if not found.identified:
            warnings = (
                *warnings,
                (
                    f"With cost {found.cost} the flipset is not identified: plans that cost the "
                    f"same flip between {percent(found.fewest)} and {percent(found.most)}; net "
                    "shares hold, those of each side do not."
                ),
            )
        return replace(each, identification=found, warnings=warnings)

    def _explained(self, each: FlipDirection) -> FlipDirection:
        """Features and subgroups of both sides."""
        if each.flipset is None:
            return each
        cell, seed = self.options.smallest_cell, self.options.seed
        return replace(
            each,
            transparency={
                side: transparency_report(
                    each.flipset,
                    side,
                    self.columns,
                    self._scaling.scale,
                    self.model.decide,
                    smallest_cell=cell,
                    seed=seed,
                )
                for side in _SIDES
            },
            marginals={
                side: flipset_marginals(
                    each.flipset, side, self.columns, smallest_cell=cell, seed=seed
                )
                for side in _SIDES
            },
            subgroups={
                side: name_subgroup(each.flipset, side, self.columns, smallest_cell=cell, seed=seed)
                for side in _SIDES
            },
        )


def rate_mismatch(flipset: Flipset, target: DecidedRows) -> str | None:
    """Why the map is wrong: the rate of transported rows differs from the target group's rate.

    A map onto the target's distribution gives transported rows the target's rate. This check
    sees differences that add up over many features, each too small for the map to move.
    """
    transported = float(flipset.counterpart_decisions.mean())
    rate = float(target.decisions.mean())
    pooled = (transported + rate) / 2
    noise = math.sqrt(pooled * (1 - pooled) * (1 / len(flipset) + 1 / len(target)))
    if abs(transported - rate) <= _RATE + 3 * noise:
        return None
    return (
        f"the map fails validation: {percent(transported)} of the transported rows get the "
        f"favourable decision, but {percent(rate)} of the target group."
    )


def unseen_share(first: int, second: int, variables: int) -> float:
    """What may flip through a feature that differs too little for its test to see.

    The largest distance of two distributions that a test at the level of one variable does not find
    four times in five, in groups of these sizes.
    """
    gap = float(stats.kstwo.isf(FAMILY_LEVEL / variables, round(first * second / (first + second))))
    return min(gap + 0.842 * 0.5 * math.sqrt(1 / first + 1 / second), 1.0)
