"""Two groups of a FlipTest in both directions: maps, flipsets, evidence, explanation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from offline_audit.fliptest.flipset import (
    SIDES,
    DecidedRows,
    DecisionModel,
    Flipset,
    Identification,
    Side,
    counterparts_of,
    identify,
    support_warnings,
)
from offline_audit.fliptest.marginals import flipset_marginals
from offline_audit.fliptest.options import Options, pair_steps
from offline_audit.fliptest.other_attributes import attribute_changes, with_undone_flips
from offline_audit.fliptest.resampling import (
    ShareEstimate,
    StandardErrors,
    bootstrap,
    detectable_shares,
    net_estimate,
    null_and_p_value,
    rate_mismatch,
    share_estimate,
)
from offline_audit.fliptest.result import FlipDirection
from offline_audit.fliptest.subgroup import name_subgroup
from offline_audit.fliptest.transparency import transparency_report
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.validated_map import ValidatedMap, fit_validated
from offline_audit.progress import Reporter
from offline_audit.rendering import count, percent
from offline_audit.units import effective_rows, unit_count

__all__ = ["Pair"]

Two = tuple[FlipDirection, FlipDirection]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Members of two groups, of one label or of any.

    Attributes:
        names: Names of the groups.
        label: Label of the rows; None for rows of any label.
        groups: Rows of each group on which the model has decided.
        columns: Description of the columns.
        model: Model that decides on counterparts.
        options: Options of the test.
        warnings: Warnings about the labels of the groups.
    """

    names: tuple[str, str]
    label: int | None
    groups: tuple[DecidedRows, DecidedRows]
    columns: Columns
    model: DecisionModel
    options: Options
    warnings: tuple[str, ...] = ()

    def blank(self, reason: str | None = None) -> Two:
        """Both directions before any computation."""
        reason = self._too_few() if reason is None else reason
        forward, backward = (
            FlipDirection(
                source=self.names[source],
                target=self.names[1 - source],
                label=self.label,
                rows=(len(self.groups[source]), len(self.groups[1 - source])),
                rates=(self._rate(source), self._rate(1 - source)),
                reason=reason,
                warnings=self.warnings,
            )
            for source in (0, 1)
        )
        return forward, backward

    def stages(self, blank: Two, reporter: Reporter) -> Iterator[Two]:
        """Yield both directions after each stage, so that a failure keeps the stages before."""
        if blank[0].reason is not None:
            reporter.step(pair_steps(self.options))
            return
        name = " and ".join(self.names)
        reporter.doing(f"{name}: maps")
        fitted = self._fit(0, reporter), self._fit(1, reporter)
        reporter.step()
        flipsets, excluded = zip(
            *(
                counterparts_of(rows, fit.map, self.model, self.options.n_counterparts)
                for rows, fit in zip(self.groups, fitted, strict=True)
            ),
            strict=True,
        )
        reporter.step()
        directions = self._estimated(blank, fitted, flipsets, excluded, (None, None))
        yield directions
        reporter.doing(f"{name}: intervals")
        errors = self._errors(fitted, reporter)
        directions = self._estimated(blank, fitted, flipsets, excluded, errors)
        yield directions
        reporter.doing(f"{name}: permutations")
        directions = self._with_null(directions, errors, reporter)
        yield directions
        reporter.doing(f"{name}: identification")
        directions = self._identified(directions)
        reporter.step()
        yield directions
        if self.options.explain:
            reporter.doing(f"{name}: explanation")
            directions = self._explained(directions[0]), self._explained(directions[1])
        reporter.step()
        yield directions

    @property
    def _scaling(self) -> Scaling:
        return Scaling.of(self.groups[0].features, self.groups[1].features, self.columns)

    def _rate(self, index: int) -> float | None:
        rows = self.groups[index]
        return (
            float(rows.decisions.mean()) if rows.n_units() >= self.options.smallest_cell else None
        )

    def _too_few(self) -> str | None:
        least = self.options.smallest_group
        short = [
            f"{name} has {count(rows.n_units(), 'row' if rows.units is None else 'unit')}"
            for name, rows in zip(self.names, self.groups, strict=True)
            if rows.n_units() < least
        ]
        if not short:
            return None
        return f"{' and '.join(short)}; at least {least} are required (`smallest_group`)."

    def _fit(self, source: int, reporter: Reporter) -> ValidatedMap:
        def tell(done: int, total: int) -> None:
            reporter.doing(
                f"{' and '.join(self.names)}: map {source + 1} of 2, {done:,} of {total:,} steps"
            )

        return fit_validated(
            self.groups[source].features,
            self.groups[1 - source].features,
            self.columns,
            self.options.method,
            grid=self.groups[source].grid,
            seed=self.options.seed,
            progress=tell,
            units=(self.groups[source].units, self.groups[1 - source].units),
        )

    def _estimated(
        self,
        blank: Two,
        fitted: tuple[ValidatedMap, ValidatedMap],
        flipsets: tuple[Flipset, ...],
        excluded: tuple[int, ...],
        errors: tuple[StandardErrors | None, StandardErrors | None],
    ) -> Two:
        parts = zip(blank, fitted, flipsets, excluded, errors, strict=True)
        forward, backward = (self._with_shares(*part) for part in parts)
        return forward, backward

    def _with_shares(
        self,
        blank: FlipDirection,
        fitted: ValidatedMap,
        flipset: Flipset,
        excluded: int,
        errors: StandardErrors | None,
    ) -> FlipDirection:
        """Shares with their intervals; a reason if the map fails validation."""
        options, names = self.options, (blank.source, blank.target)
        source, target = self.groups if names == self.names else self.groups[::-1]
        cell = options.smallest_cell
        warnings = [*self.warnings, *support_warnings(source, target, self.columns, names, cell)]
        if excluded:
            many = f"fewer than {cell} rows" if excluded < cell else count(excluded, "row")
            warnings.append(f"Excluded: {many}, as the model did not decide on a counterpart.")
        if fitted.validation.state == "not shown":
            warnings.append(fitted.validation.statement)
        if errors is None:
            warnings.append("Intervals do not include the error of the map: it was not refitted.")
        if not len(flipset):
            reason = "the model did not decide on any counterpart."
            return replace(blank, reason=reason, warnings=tuple(warnings))
        rows = effective_rows(flipset.units, len(flipset))
        advantaged, disadvantaged, gross = (
            share_estimate(share, None if errors is None else getattr(errors, name), rows)
            for name, share in (
                ("advantaged", flipset.share("advantaged")),
                ("disadvantaged", flipset.share("disadvantaged")),
                ("gross", flipset.gross),
            )
        )
        return replace(
            blank,
            of_favourable=self._part(flipset, "advantaged", errors),
            of_unfavourable=self._part(flipset, "disadvantaged", errors),
            advantaged=advantaged,
            disadvantaged=disadvantaged,
            gross=gross,
            net=net_estimate(flipset, errors),
            validation=fitted.validation,
            reason=fitted.rejection or rate_mismatch(flipset, target) or self._untested(),
            attribute_changes=attribute_changes(flipset, self.columns, options.others, cell),
            warnings=tuple(warnings),
            flipset=flipset,
        )

    def _part(
        self, flipset: Flipset, side: Side, errors: StandardErrors | None
    ) -> ShareEstimate | None:
        """Share that changes of the decisions of one side; None if there are few of them."""
        decided = flipset.decisions == (side == "advantaged")
        rows, units = int(decided.sum()), None if flipset.units is None else flipset.units[decided]
        if unit_count(units, rows) < self.options.smallest_cell:
            return None
        error = None
        if errors is not None:
            error = errors.of_favourable if side == "advantaged" else errors.of_unfavourable
        return share_estimate(flipset.share_of_decisions(side), error, effective_rows(units, rows))

    def _untested(self) -> str | None:
        if self.options.n_resamples:
            return None
        return f"no permutation test was run (map {self.options.method.name}, n_resamples=0)."

    def _errors(
        self, fitted: tuple[ValidatedMap, ValidatedMap], reporter: Reporter
    ) -> tuple[StandardErrors | None, StandardErrors | None]:
        if self.options.n_bootstrap < 2:
            reporter.step(self.options.n_bootstrap)
            return None, None
        return bootstrap(
            *self.groups,
            (fitted[0].map, fitted[1].map),
            self.options.method,
            self.columns,
            self.model,
            n_bootstrap=self.options.n_bootstrap,
            seed=self.options.seed,
            tick=reporter.step,
        )

    def _with_null(
        self,
        directions: Two,
        errors: tuple[StandardErrors | None, StandardErrors | None],
        reporter: Reporter,
    ) -> Two:
        if not self.options.n_resamples:
            return directions
        # A direction without a share must not count as reached by any permutation.
        forward, backward = (math.inf if d.gross is None else d.gross.value for d in directions)
        nulls = null_and_p_value(
            *self.groups,
            self.options.method,
            self.columns,
            self.model,
            (forward, backward),
            n_resamples=self.options.n_resamples,
            seed=self.options.seed,
            tick=reporter.step,
        )
        sizes = tuple(rows.effective for rows in self.groups)
        variables = len(self.columns.variables)
        first, second = (
            direction
            if direction.flipset is None
            else replace(
                direction,
                null=null,
                smallest_detectable_effect=detectable_shares(
                    direction.flipset, sizes, variables, self.options.method, error, null
                ),
            )
            for direction, error, null in zip(directions, errors, nulls, strict=True)
        )
        return first, second

    def _identified(self, directions: Two) -> Two:
        scaling, cost, seed = self._scaling, self.options.method.cost, self.options.seed
        forward, backward = (
            _with_identification(direction, identify(*groups, scaling, cost, seed=seed))
            for direction, groups in zip(directions, (self.groups, self.groups[::-1]), strict=True)
        )
        return forward, backward

    def _explained(self, direction: FlipDirection) -> FlipDirection:
        """Features and subgroups of both sides."""
        flipset = direction.flipset
        if flipset is None:
            return direction
        cell, seed = self.options.smallest_cell, self.options.seed
        flipset = flipset.one_per_unit(seed)
        scale = self._scaling.scale
        transparency = {
            side: transparency_report(
                flipset, side, self.columns, scale, self.model.decide, smallest_cell=cell, seed=seed
            )
            for side in SIDES
        }
        return replace(
            direction,
            transparency=transparency,
            attribute_changes=with_undone_flips(direction.attribute_changes, flipset, transparency),
            marginals={
                side: flipset_marginals(flipset, side, self.columns, smallest_cell=cell, seed=seed)
                for side in SIDES
            },
            subgroups={
                side: name_subgroup(flipset, side, self.columns, smallest_cell=cell, seed=seed)
                for side in SIDES
            },
        )


def _with_identification(direction: FlipDirection, result: Identification) -> FlipDirection:
    warnings = direction.warnings
    if not result.identified:
        warning = (
            f"The flipset is not identified with cost {result.cost}: plans of equal cost flip "
            f"between {percent(result.fewest)} and {percent(result.most)}. Use the net share "
            "only; it does not depend on the plan."
        )
        warnings = (*warnings, warning)
    return replace(direction, identification=result, warnings=warnings)
