"""Every request has a name of its own."""

from __future__ import annotations

import pytest

from monitor.request import RequestIds


def test_a_clients_id_is_taken_once():
    ids = RequestIds()
    assert ids.assign("loan-7") == "loan-7"
    other = ids.assign("loan-7")
    assert other != "loan-7"
    assert ids.assign("loan-8") == "loan-8"


@pytest.mark.parametrize("given", ["", "x" * 101, "a\nb", "a\x00b", 'a"b', "a\\b"])
def test_an_id_that_cannot_be_a_name_is_replaced(given):
    ids = RequestIds()
    names = {ids.assign(given) for _ in range(100)}
    assert len(names) == 100
    assert given not in names


def test_nobody_can_take_a_name_that_is_still_to_be_made():
    ids = RequestIds()
    run = ids.assign("").partition("-")[0]
    assert ids.assign(f"{run}-3") == f"{run}-2"
    assert ids.assign("") == f"{run}-3"


def test_two_sidecars_make_different_names():
    assert RequestIds().assign("") != RequestIds().assign("")


def test_memory_is_bounded_and_forgets_the_oldest():
    ids = RequestIds(remembered=3)
    for name in "abcd":
        assert ids.assign(name) == name
    assert len(ids._used) == len(ids._order) == 3
    assert ids.assign("a") == "a"
    assert ids.assign("d") != "d"
