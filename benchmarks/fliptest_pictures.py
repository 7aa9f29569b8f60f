"""Figures of the page on FlipTest: `python -m benchmarks.fliptest_pictures --out FOLDER`.

No claims. People of the world with a scorecard that is biased within a subgroup, or through proxies
of ethnicity; and applicants of Lipton et al., hired by experience and hair length.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from benchmarks.papers.lipton import HIRING, HiringModel, applicants, fair_model
from monitor import World, decide, train_proxy_biased, train_subgroup_biased
from offline_audit import Columns, FlipTestResult, flip_test
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_pictures"]

Trainer = Callable[..., nn.Module]

_PEOPLE, _TRAINING, _APPLICANTS = 10_000, 20_000, 4_000
# Distinguishable with any colour vision, and in print (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GRAY = "#0072B2", "#D55E00", "#009E73", "0.6"
# People in the figure of the map, and those with an arrow.
_DOTS, _ARROWS = 400, 40
_DPI = 100


def draw_pictures(folder: Path) -> list[Path]:
    """Write all figures; return their paths."""
    women = _lending("sex", train_subgroup_biased).direction("woman", "man")
    figures = {
        "flips": _lending("ethnicity", train_proxy_biased, reference="ardan").plot(),
        "transparency": women.plot_transparency("disadvantaged"),
        "marginals": women.plot_marginals("disadvantaged"),
        "map": _draw_map(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        file = folder / f"fliptest-{name}.png"
        # Without matplotlib's version, so that the same figure is the same file.
        figure.savefig(file, dpi=_DPI, metadata={"Software": None})
        written.append(file)
    return written


def _lending(attribute: str, train: Trainer, reference: str | None = None) -> FlipTestResult:
    """FlipTest of the example on the page."""
    world = World()
    model = partial(decide, train(world.people(_TRAINING, seed=1), seed=0))
    people = world.people(_PEOPLE, seed=2)
    names = {one.name: np.array(one.groups) for one in world.attributes}
    return flip_test(
        model,
        people.features,
        {attribute: names[attribute][people.groups[attribute]]},
        columns=Columns(features=world.features, one_hot_groups=world.one_hot_groups),
        reference=reference,
    )


def _draw_map() -> Figure:
    """Transported people, and people whose decision changes."""
    rng = np.random.default_rng(0)
    women = applicants(_APPLICANTS, men=False, rng=rng)
    men = applicants(_APPLICANTS, men=True, rng=rng)
    model = fair_model(women, men)
    result = flip_test(
        model.hires,
        np.concatenate([women.features, men.features]),
        {"sex": np.repeat(["woman", "man"], _APPLICANTS)},
        columns=HIRING,
        n_resamples=0,
        n_bootstrap=0,
        explain=False,
    )
    flipset = result.direction("woman", "man").flipset
    assert flipset is not None
    figure, only = blank_figure(9.5, 4.6)
    only.remove()
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    _draw_transported(left, flipset)
    _draw_flips(right, flipset)
    for axes in (left, right):
        _draw_boundary(axes, model)
        axes.set_xlabel("hair length", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.legend(loc="upper right", fontsize=8, frameon=False)
    left.set_ylabel("work experience", fontsize=9)
    return figure


def _draw_transported(axes: Axes, women: Flipset) -> None:
    features, counterparts = women.features[:_DOTS], women.counterparts[0, :_DOTS]
    axes.set_title("Women transported to men", fontsize=10)
    _draw_dots(axes, features, _GRAY, "women")
    _draw_dots(axes, counterparts, _GREEN, "their counterparts")
    _draw_arrows(axes, features[:_ARROWS], counterparts[:_ARROWS], "black")


def _draw_flips(axes: Axes, women: Flipset) -> None:
    features, counterparts = women.features[:_DOTS], women.counterparts[0, :_DOTS]
    axes.set_title("Decisions that change", fontsize=10)
    _draw_dots(axes, features, _GRAY, "women")
    sides: tuple[tuple[Side, str], ...] = (("disadvantaged", _ORANGE), ("advantaged", _BLUE))
    for side, colour in sides:
        members = women.members(side)[:_DOTS]
        _draw_arrows(axes, features[members], counterparts[members], colour)
        _draw_dots(axes, features[members], colour, side, size=7)


def _draw_dots(axes: Axes, people: Features, colour: str, label: str, size: float = 3) -> None:
    work, hair = people.T
    axes.plot(hair, work, ".", color=colour, markersize=size, label=label)


def _draw_arrows(axes: Axes, start: Features, end: Features, colour: str) -> None:
    for one, other in zip(start, end, strict=True):
        axes.annotate(
            "",
            xy=tuple(other[::-1]),
            xytext=tuple(one[::-1]),
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 0.6},
        )


def _draw_boundary(axes: Axes, model: HiringModel) -> None:
    hair, work = np.meshgrid(np.linspace(0, 35, 300), np.linspace(-10, 32, 300))
    hired = model.hires(np.column_stack([work.ravel(), hair.ravel()]).astype(np.float32))
    axes.contour(hair, work, hired.reshape(hair.shape), [0.5], colors="black")
    axes.plot([], [], color="black", label="hired from this line on")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    for path in draw_pictures(parser.parse_args().out):
        print(f"{path}, {path.stat().st_size / 1000:.0f} kB")
