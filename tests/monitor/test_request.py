"""Every request has a unique id."""

from __future__ import annotations

import pytest

from monitor.request import RequestIds


def test_the_id_of_a_client_is_used_once():
    ids = RequestIds()
    assert ids.assign("loan-7") == "loan-7"
    other = ids.assign("loan-7")
    assert other != "loan-7"
    assert ids.assign("loan-8") == "loan-8"


@pytest.mark.parametrize("client_id", ["", "x" * 101, "a\nb", "a\x00b", 'a"b', "a\\b"])
def test_an_invalid_id_is_replaced(client_id):
    ids = RequestIds()
    names = {ids.assign(client_id) for _ in range(100)}
    assert len(names) == 100
    assert client_id not in names


def test_a_client_cannot_use_the_next_generated_id():
    ids = RequestIds()
    run = ids.assign("").partition("-")[0]
    assert ids.assign(f"{run}-3") == f"{run}-2"
    assert ids.assign("") == f"{run}-3"


def test_two_sidecars_generate_different_ids():
    assert RequestIds().assign("") != RequestIds().assign("")


def test_the_number_of_remembered_ids_is_bounded():
    ids = RequestIds(remembered=3)
    for name in "abcd":
        assert ids.assign(name) == name
    assert len(ids._used) == len(ids._order) == 3
    assert ids.assign("a") == "a"
    assert ids.assign("d") != "d"
