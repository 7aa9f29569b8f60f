"""The drift watch's state on disk is whole or not there."""

from __future__ import annotations

import pytest

from monitor.errors import ServeError
from monitor.state_file import read_state_file, write_state_file


def test_what_was_written_is_read_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "deep" / "drift.npz"
    assert read_state_file(path) is None
    for data in (b"one", b"two"):
        write_state_file(path, data)
        assert read_state_file(path) == data
    assert [file.name for file in path.parent.iterdir()] == ["drift.npz"]


def test_a_failed_write_leaves_the_old_state(tmp_path):
    path = tmp_path / "drift.npz"
    write_state_file(path, b"old")
    with pytest.raises(TypeError):
        write_state_file(path, "no bytes")  # type: ignore[arg-type]
    assert read_state_file(path) == b"old"


def test_a_place_that_cannot_hold_it_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ServeError, match=r"drift\.state_path"):
        read_state_file(tmp_path / "file" / "drift.npz")
    with pytest.raises(ServeError, match=r"drift\.state_path"):
        read_state_file(tmp_path)
