"""Shares of pairs of groups in words: who would get another decision, and who loses."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.fitting.pairs import PairShare

__all__ = ["as_other", "pair_lines", "who_loses"]

# Pairs in a table, misses of the maps that are described, and groups that are said to lose against
# another; others are counted.
_MOST_PAIRS, _MOST_MISSES, _MOST_LOSSES = 12, 3, 3


def as_other(pair: PairShare) -> str:
    """Name of a pair: its source as its target."""
    return f"{pair.source} as {pair.target}"


def who_loses(pairs: Sequence[PairShare], favourable: str, unfavourable: str) -> list[str]:
    """Paragraphs that say which group loses against which, by how much, and what is not known.

    Args:
        pairs: Shares of all ordered pairs of groups.
        favourable: Name of the favourable decision.
        unfavourable: Name of the other decision.
    """
    enough = {(pair.source, pair.target): pair for pair in pairs if pair.enough_rows}
    if not enough:
        return ["This cannot be determined: no pair of groups has enough rows."]
    both_ways = [(pair, enough[target, source]) for (source, target), pair in enough.items()]
    losses = [pairs for pairs in both_ways if _loses(*pairs)]
    losses.sort(key=lambda loss: -max(abs(pair.net) for pair in loss))
    sentences = [
        f"{loser.source} loses against {loser.target}: {_rates(loser, unfavourable)}"
        f"{_changes(loser, winner, favourable, unfavourable)}"
        for loser, winner in losses[:_MOST_LOSSES]
    ]
    if (others := len(losses) - _MOST_LOSSES) > 0:
        sentences.append(
            f"Likewise {'a group loses' if others == 1 else 'groups lose'} in {_pairs(others)} "
            "more, see the table."
        )
    if losses and len(enough) > 2:
        sentences.append("Each interval holds for its pair alone.")
    missed = [pair for pair in enough.values() if pair.unexplained]
    if not losses and not missed:
        sentences.append(
            "No group clearly loses: for every pair of groups with enough rows, the 95% interval "
            "of gains minus losses includes zero, or both directions contradict each other."
        )
    if missed:
        sentences.append(
            f"It cannot be determined for {len(missed)} of {_pairs(len(enough))}, since the maps "
            "do not explain the difference between the groups."
        )
        if not losses:
            widest = max(missed, key=lambda pair: pair.rate_gap[0])
            sentences.append(f"By rates alone, {_rates(widest, unfavourable)}")
    return sentences


def _loses(loser: PairShare, winner: PairShare) -> bool:
    """Whether decisions about either group show a loss, and the others do not contradict it."""
    shown = loser.balance == "loses" or winner.balance == "gains"
    contradicted = loser.balance == "gains" or winner.balance == "loses"
    return shown and not (contradicted or loser.unexplained or winner.unexplained)


def _rates(pair: PairShare, unfavourable: str) -> str:
    gap, low, high = (100 * value for value in pair.rate_gap)
    return (
        f"{unfavourable!r} is {abs(gap):.1f} percentage points {'more' if gap >= 0 else 'less'} "
        f"frequent for {pair.source} than for {pair.target} ({1 - pair.rate:.1%} against "
        f"{1 - pair.target_rate:.1%}; 95% interval of the difference {low:+.1f} to {high:+.1f})."
    )


def _changes(loser: PairShare, winner: PairShare, favourable: str, unfavourable: str) -> str:
    """The decisions that show a loss: those about either group, or about both."""
    parts = [
        f"of the decisions {decision!r} about {pair.source}, {part.share:.1%} (95% interval "
        f"{part.low:.1%} to {part.high:.1%}) would be {other!r} as {pair.target}"
        for pair, part, decision, other in (
            (loser, loser.of_unfavourable, unfavourable, favourable),
            (winner, winner.of_favourable, favourable, unfavourable),
        )
        if part is not None and pair.balance != "unclear"
    ]
    if not parts:
        return ""
    known = "; ".join(parts)
    unclear = [pair.source for pair in (loser, winner) if pair.balance == "unclear"]
    end = f" (decisions about {unclear[0]} alone leave it open)" if unclear else ""
    return f" {known[0].upper()}{known[1:]}{end}."


def pair_lines(pairs: Sequence[PairShare], favourable: str, unfavourable: str) -> list[str]:
    """Paragraphs, and lines of a table, which begin with two spaces.

    Args:
        pairs: Shares of all ordered pairs of groups.
        favourable: Name of the favourable decision.
        unfavourable: Name of the other decision.
    """
    enough = [pair for pair in pairs if pair.enough_rows]
    if len({pair.source for pair in pairs}) == 2:
        lines = [_sentence(pair, favourable, unfavourable) for pair in enough]
    else:
        lines = _table(enough, favourable, unfavourable)
    missed = sorted((p for p in enough if p.misses), key=lambda p: (p.established, -abs(p.miss)))
    lines += [_miss(pair, favourable) for pair in missed[:_MOST_MISSES]]
    if others := missed[_MOST_MISSES:]:
        count = sum(pair.unexplained for pair in others)
        lines.append(
            f"The maps also miss the rate of {favourable!r} for {_pairs(len(others))}, of which "
            f"{count} have shares that are not established."
        )
    if few := [pair for pair in pairs if not pair.enough_rows]:
        sizes = {p.source: p.rows for p in few} | {p.target: p.target_rows for p in few}
        enough_alone = {group for pair in enough for group in (pair.source, pair.target)}
        counts = ", ".join(
            f"{group} {rows}" for group, rows in sizes.items() if group not in enough_alone
        )
        lines.append(f"Not enough rows for {_pairs(len(few))} ({counts}).")
    return lines


def _pairs(count: int) -> str:
    return f"{count} pair{'' if count == 1 else 's'}"


def _sentence(pair: PairShare, favourable: str, unfavourable: str) -> str:
    changed = pair.changed
    text = (
        f"As {pair.target}, {changed.share:.1%} of decisions about {pair.source} (95% interval "
        f"{changed.low:.1%} to {changed.high:.1%}) would change: {pair.gained.share:.1%} from "
        f"{unfavourable!r} to {favourable!r}, {pair.lost.share:.1%} from {favourable!r} to "
        f"{unfavourable!r}."
    )
    if pair.unexplained:
        return text
    if pair.balance == "unclear":
        return f"{text} Neither direction clearly prevails."
    return (
        f"{text} On balance {pair.source} {pair.balance}: {pair.rate:.1%} get {favourable!r}, and "
        f"{pair.transported_rate:.1%} would as {pair.target}."
    )


def _miss(pair: PairShare, favourable: str) -> str:
    text = (
        f"Transported from {pair.source} to {pair.target}, rows get {favourable!r} in "
        f"{pair.transported_rate:.1%} of cases, rows of {pair.target} in {pair.target_rate:.1%}: "
    )
    if pair.established:
        return f"{text}the maps miss a small part of the difference, which the interval includes."
    return f"{text}the maps do not explain the difference, and this share is not established."


def _table(pairs: Sequence[PairShare], favourable: str, unfavourable: str) -> list[str]:
    if not pairs:
        return []
    ordered = sorted(pairs, key=lambda pair: -pair.changed.share)
    shown, others = ordered[:_MOST_PAIRS], ordered[_MOST_PAIRS:]
    heading = ("changed", "95% interval", f"to {favourable!r}", f"to {unfavourable!r}")
    rows: list[tuple[str, ...]] = [("", *heading, "on balance")]
    rows += [
        (
            as_other(pair),
            f"{pair.changed.share:.1%}",
            f"{pair.changed.low:.1%} to {pair.changed.high:.1%}",
            f"{pair.gained.share:.1%}",
            f"{pair.lost.share:.1%}",
            "not established" if pair.unexplained else pair.balance,
        )
        for pair in shown
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    introduction = (
        "Decisions about members of one group that would change as members of another, and "
        f"whether the group loses or gains on balance (gets {favourable!r} less or more often):"
    )
    lines = [introduction, *("  " + "  ".join(_cells(row, widths)).rstrip() for row in rows)]
    if others:
        largest = others[0].changed.share
        lines.append(f"{_pairs(len(others)).capitalize()} more, of at most {largest:.1%} each.")
    return lines


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Cells of a row; the first and the last are words, the others are numbers."""
    last = len(row) - 1
    return [
        cell.ljust(width) if column in (0, last) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
