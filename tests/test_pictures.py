"""The pictures of the documentation show the data beside them, drawn by the current code.

Each file has its content as metadata: all texts, and the positions of lines and bars. The content
is compared exactly, up to rounding. Pixels are compared in blocks: glyphs may be drawn differently,
and the layout may be displaced by a few pixels, which depends on the version of the font renderer.
"""

from __future__ import annotations

import copy
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import NDArray
from PIL import Image

from benchmarks.pictures import DOCS, PICTURES, content_of, save

# Side of a block in pixels, and mean and largest difference of the brightness of blocks.
_BLOCK, _MEAN, _LARGEST = 20, 4.0, 90.0

every_picture = pytest.mark.parametrize("name", PICTURES)


def data_of(name: str) -> Any:
    return json.loads((DOCS / name).with_suffix(".json").read_text(encoding="utf-8"))


def drawn(data: Any, name: str) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Blocks and content of a picture as it is drawn now."""
    buffer = io.BytesIO()
    save(PICTURES[name].draw(data), buffer)
    return opened(buffer)


def opened(file: Any) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Mean colours of the blocks of a file, `[rows, columns, 3]`, and its content."""
    with Image.open(file) as image:
        content = json.loads(image.info["Description"])
        size = image.width // _BLOCK, image.height // _BLOCK
        blocks = image.convert("RGB").resize(size, Image.Resampling.BOX)
    return np.asarray(blocks).astype(float), content


def same_content(one: dict[str, Any], other: dict[str, Any]) -> bool:
    lengths = [[len(shape) for shape in content["shapes"]] for content in (one, other)]
    if one["texts"] != other["texts"] or lengths[0] != lengths[1]:
        return False
    now, then = (np.concatenate(content["shapes"]) for content in (one, other))
    return np.allclose(now, then, rtol=2e-3, atol=1e-9)


def same_blocks(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    if one.shape != other.shape:
        return False
    difference = np.abs(one - other)
    return bool(difference.mean() <= _MEAN and difference.max() <= _LARGEST)


@every_picture
def test_the_picture_is_the_one_that_is_drawn_from_the_data_beside_it(name):
    now, file = drawn(data_of(name), name), opened(DOCS / name)
    assert now[1]["texts"] == file[1]["texts"]
    assert same_content(now[1], file[1])
    assert same_blocks(now[0], file[0])


@every_picture
@pytest.mark.parametrize(
    "renderer",
    [
        {"text.hinting": "none"},
        {"text.hinting": "force_autohint"},
        {"text.antialiased": False},
    ],
    ids=["no hinting", "other hinting", "no antialiasing"],
)
def test_another_renderer_of_fonts_is_tolerated(name, renderer):
    with rc_context(renderer):
        now, file = drawn(data_of(name), name), opened(DOCS / name)
    assert same_content(now[1], file[1])
    assert same_blocks(now[0], file[0])


def changes() -> list[Any]:
    """Small changes of the data of every picture: path to a number, and factor."""
    return [
        ("methods/images/fliptest-flips.png", ["rows", 1, "disadvantaged"], 1.06),
        ("methods/images/fliptest-flips.png", ["rows", 3, "disadvantaged_interval", 1], 1.06),
        ("methods/images/fliptest-flips.png", ["rows", 0, "rows"], 1.01),
        (
            "methods/images/fliptest-transparency.png",
            ["transparency", "features", 1, "magnitude"],
            1.06,
        ),
        (
            "methods/images/fliptest-marginals.png",
            ["marginals", "variables", 2, "bins", 0, "members"],
            1.3,
        ),
        ("methods/images/fliptest-map.png", ["women", 3, 0], 1.5),
        ("methods/images/fliptest-map.png", ["shares", "advantaged"], 1.02),
        ("images/fit-audit.png", ["attributes", "sex", "interval", "share"], 1.01),
        ("images/fit-audit.png", ["attributes", "sex", "feature_shares", 1, 1], 1.06),
        ("images/fit-audit.png", ["attributes", "ethnicity", "flip_histogram", 0], 0.95),
    ]


@pytest.mark.parametrize(("name", "path", "factor"), changes())
def test_a_changed_figure_is_detected(name, path, factor):
    data = copy.deepcopy(data_of(name))
    part = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = type(part[path[-1]])(part[path[-1]] * factor)
    assert not same_content(drawn(data, name)[1], opened(DOCS / name)[1])


def test_every_picture_of_the_documentation_is_drawn_by_the_script_and_shown_on_a_page():
    files = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.png")}
    assert files == PICTURES.keys()
    assert not list(DOCS.rglob("*.svg")) + list(DOCS.rglob("*.jpg"))
    shown = {
        str((page.parent / target).resolve().relative_to(DOCS.resolve()))
        for page in DOCS.rglob("*.md")
        for target in re.findall(r"!\[[^]]+\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == files


@every_picture
def test_titles_and_texts_are_not_cut_off(name):
    figure = PICTURES[name].draw(data_of(name))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    # A hundredth of an inch is a pixel.
    assert min(box.x0, box.y0) >= -0.01
    assert box.x1 <= width + 0.01
    assert box.y1 <= height + 0.01


@every_picture
def test_other_pixels_with_the_same_content_are_detected(name, tmp_path):
    blocks, _ = opened(DOCS / name)
    with Image.open(DOCS / name) as image:
        red, green, blue = image.convert("RGB").split()
    swapped = np.asarray(
        Image.merge("RGB", (blue, green, red)).resize(blocks.shape[1::-1], Image.Resampling.BOX)
    )
    assert not same_blocks(swapped.astype(float), blocks)
    assert not same_blocks(np.roll(blocks, 2, axis=1), blocks)


def test_the_content_has_the_texts_of_the_whole_figure():
    name = "images/fit-audit.png"
    texts = content_of(PICTURES[name].draw(data_of(name)))["texts"]
    assert any("95% interval over data and fit" in text for text in texts)
    assert any("woman loses" in text for text in texts)
