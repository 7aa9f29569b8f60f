"""The pictures of the documentation: `python -m benchmarks.pictures [--compute]`.

Beside each picture is a JSON file with the data that it shows. The pictures are drawn from these
files again, which takes seconds; `--compute` first computes the data, which takes minutes. No
claims. A test draws every picture again and compares it with the file.

People of the world with a scorecard that is biased within a subgroup, or through proxies of
ethnicity; the lender of the demo; and applicants of Lipton et al., hired by experience and hair
length.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.text import Text
from pydantic import TypeAdapter
from torch import nn

from benchmarks.papers.lipton import HIRING, HiringModel, applicants, fair_model
from monitor import FitData, World, decide, fit, train_proxy_biased, train_subgroup_biased
from monitor.demo.lender import lending_spec
from monitor.fitting.audit import FitAudit
from monitor.fitting.audit_figure import audit_figure
from offline_audit import Columns, FlipTestResult, flip_test
from offline_audit.fliptest.figures import (
    FlipRow,
    draw_flips,
    draw_marginals,
    draw_transparency,
    flip_rows,
    flips_title,
)
from offline_audit.fliptest.flipset import SIDES, Side
from offline_audit.fliptest.marginals import Marginals
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.plots import blank_figure
from offline_audit.rendering import json_ready

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DOCS", "PICTURES", "Picture", "content_of", "draw", "save"]

DOCS = Path(__file__).parents[1] / "docs"
_PEOPLE, _TRAINING, _APPLICANTS = 10_000, 20_000, 4_000
# Rows, refits and seed of the fit of the demo.
_FITTED, _REFITS, _SEED = 60_000, 10, 7
# Distinguishable with any colour vision, and in print (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GRAY = "#0072B2", "#D55E00", "#009E73", "0.6"
_SIDE_STYLES: Mapping[Side, tuple[str, str]] = {
    "disadvantaged": (_ORANGE, "^"),
    "advantaged": (_BLUE, "s"),
}
# People in the figure of the map, and those with an arrow.
_DOTS, _ARROWS = 400, 40
_DPI = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """How a picture is made.

    Attributes:
        data: Computes the data that the picture shows, ready for JSON.
        draw: Draws the picture from these data.
    """

    data: Callable[[], Any]
    draw: Callable[[Any], Figure]


def draw(name: str) -> Figure:
    """Draw a picture from the data beside it."""
    return PICTURES[name].draw(json.loads((DOCS / name).with_suffix(".json").read_text()))


def save(figure: Figure, file: Any) -> None:
    """Write a picture, with its content as metadata."""
    # Without matplotlib's version, so that the same figure is the same file.
    metadata = {"Software": None, "Description": json.dumps(content_of(figure))}
    figure.savefig(file, dpi=_DPI, metadata=metadata)


def content_of(figure: Figure) -> dict[str, Any]:
    """Texts of a figure, and positions of its lines and bars, which no font renderer changes."""
    figure.canvas.draw()
    texts = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    shapes = [np.array(line.get_data(), float) for axes in figure.axes for line in axes.lines]
    shapes += [
        patch.get_patch_transform().transform(patch.get_path().vertices)
        for axes in figure.axes
        for patch in axes.patches
    ]
    return {
        "texts": sorted(" ".join(text.split()) for text in texts if text.strip()),
        "shapes": [[float(f"{value:.4g}") for value in shape.ravel()] for shape in shapes],
    }


def _lending(attribute: str, train: Callable[..., nn.Module], **options: Any) -> FlipTestResult:
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
        **options,
    )


def _flips_data() -> Any:
    result = _lending("ethnicity", train_proxy_biased, reference="ardan")
    return {"title": flips_title(result), "rows": json_ready(flip_rows(result))}


def _draw_flips(data: Any) -> Figure:
    return draw_flips(TypeAdapter(list[FlipRow]).validate_python(data["rows"]), data["title"])


def _side_data(kind: str) -> Any:
    women = _lending("sex", train_subgroup_biased).direction("woman", "man")
    return {"direction": women.name, kind: json_ready(getattr(women, kind)["disadvantaged"])}


def _draw_transparency(data: Any) -> Figure:
    report = TypeAdapter(TransparencyReport).validate_python(data["transparency"])
    return draw_transparency(report, data["direction"])


def _draw_marginals(data: Any) -> Figure:
    marginals = TypeAdapter(Marginals).validate_python(data["marginals"])
    return draw_marginals(marginals, data["direction"])


def _audit_data() -> Any:
    world = World()
    classifier = train_proxy_biased(world.people(_FITTED, seed=_SEED), seed=_SEED)
    sample = world.people(_FITTED, seed=_SEED + 2)
    data = FitData(features=sample.features, groups=sample.groups, labels=sample.labels)
    with tempfile.TemporaryDirectory() as folder:
        result = fit(
            *(classifier, data, lending_spec(world), Path(folder) / "bundle"), seed=_SEED,
            compiled=False, n_refits=_REFITS,
        )  # fmt: skip
    return result.audit.to_dict()


def _draw_audit(data: Any) -> Figure:
    return audit_figure(TypeAdapter(FitAudit).validate_python(data))


def _map_data() -> Any:
    """Women, their counterparts, who flips, and the decision boundary."""
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
    rounded = np.round(flipset.features[:_DOTS], 3), np.round(flipset.counterparts[0, :_DOTS], 3)
    return {
        "women": rounded[0].astype(float).round(3).tolist(),
        "counterparts": rounded[1].astype(float).round(3).tolist(),
        **{s: np.flatnonzero(flipset.members(s)[:_DOTS]).tolist() for s in SIDES},
        "shares": {side: flipset.share(side) for side in SIDES},
        "people": len(flipset),
        "model": json_ready(model),
    }


def _draw_map(data: Any) -> Figure:
    """Transported people, and people whose decision changes."""
    figure, only = blank_figure(9.5, 5.0)
    only.remove()
    shares = data["shares"]
    figure.suptitle(
        f"{shares['advantaged']:.1%} of {data['people']:,} women are hired and would not be as "
        f"men, for their long hair;\n{shares['disadvantaged']:.1%} are not hired and would be as "
        "men",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    women, counterparts = np.array(data["women"]), np.array(data["counterparts"])
    left.set_title("women transported to men", fontsize=10)
    _draw_dots(left, women, _GRAY, f"women ({len(women)} shown)")
    _draw_dots(left, counterparts, _GREEN, "their counterparts", "+")
    _draw_arrows(left, women[:_ARROWS], counterparts[:_ARROWS], "black")
    right.set_title("decisions that change", fontsize=10)
    _draw_dots(right, women, _GRAY, "women")
    for side, (colour, marker) in _SIDE_STYLES.items():
        members = data[side]
        _draw_arrows(right, women[members], counterparts[members], colour)
        _draw_dots(right, women[members], colour, side, marker, size=4)
    for axes in (left, right):
        _draw_boundary(axes, HiringModel(**{k: _array(v) for k, v in data["model"].items()}))
        axes.set_xlabel("hair length", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.legend(loc="upper right", fontsize=8, frameon=False)
    left.set_ylabel("years of work experience", fontsize=9)
    return figure


def _array(value: Any) -> Any:
    return np.array(value) if isinstance(value, list) else value


def _draw_dots(
    axes: Axes, people: Any, colour: str, label: str, marker: str = ".", size: float = 3
) -> None:
    work, hair = people.T
    style: dict[str, Any] = {"linestyle": "", "color": colour, "markersize": size}
    axes.plot(hair, work, marker=marker, label=label, **style)


def _draw_arrows(axes: Axes, start: Any, end: Any, colour: str) -> None:
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


# By path below docs/.
PICTURES: Mapping[str, Picture] = {
    "images/fit-audit.png": Picture(data=_audit_data, draw=_draw_audit),
    "methods/images/fliptest-flips.png": Picture(data=_flips_data, draw=_draw_flips),
    "methods/images/fliptest-transparency.png": Picture(
        data=partial(_side_data, "transparency"), draw=_draw_transparency
    ),
    "methods/images/fliptest-marginals.png": Picture(
        data=partial(_side_data, "marginals"), draw=_draw_marginals
    ),
    "methods/images/fliptest-map.png": Picture(data=_map_data, draw=_draw_map),
}


def main() -> None:
    """Draw all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compute", action="store_true", help="compute the data, in minutes")
    parser.add_argument("names", nargs="*", help="pictures to draw; all by default")
    options = parser.parse_args()
    for name in options.names or PICTURES:
        file = DOCS / name
        if options.compute:
            file.parent.mkdir(exist_ok=True)
            data = json.dumps(PICTURES[name].data(), ensure_ascii=False, allow_nan=False)
            file.with_suffix(".json").write_text(data + "\n", encoding="utf-8")
        save(draw(name), file)
        print(f"{file.relative_to(DOCS.parent)}, {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
