"""Every request has a name of its own."""

from __future__ import annotations

import pytest

from monitor.request_ids import RequestIds


def test_a_clients_id_is_taken_once():
    ids = RequestIds()
    assert ids.name("loan-7") == "loan-7"
    other = ids.name("loan-7")
    assert other != "loan-7"
    assert ids.name("loan-8") == "loan-8"


@pytest.mark.parametrize("given", ["", "x" * 101, "a\nb", "a\x00b", 'a"b', "a\\b"])
def test_an_id_that_cannot_be_a_name_is_replaced(given):
    ids = RequestIds()
    names = {ids.name(given) for _ in range(100)}
    assert len(names) == 100
    assert given not in names


def test_nobody_can_take_a_name_that_is_still_to_be_made():
    ids = RequestIds()
    run = ids.name("").partition("-")[0]
    assert ids.name(f"{run}-3") == f"{run}-2"
    assert ids.name("") == f"{run}-3"


def test_two_sidecars_make_different_names():
    assert RequestIds().name("") != RequestIds().name("")


def test_memory_is_bounded_and_forgets_the_oldest():
    ids = RequestIds(remembered=3)
    for name in "abcd":
        assert ids.name(name) == name
    assert len(ids._used) == len(ids._order) == 3
    assert ids.name("a") == "a"
    assert ids.name("d") != "d"
