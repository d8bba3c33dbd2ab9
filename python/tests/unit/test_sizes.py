"""Sizes and switches as people write them."""

import pytest

from snowskin.sizes import SIZE_MAX, parse_size, parse_switch


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        ("0", 0),
        ("4 GB", 4 << 30),
        ("4gib", 4 << 30),
        ("512mb", 512 << 20),
        ("0.5g", 1 << 29),
        (".5k", 512),
        (" 7 ", 7),
        ("1TB", 1 << 40),
        (str(SIZE_MAX), SIZE_MAX),
    ],
)
def test_units_are_powers_of_1024(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", -1, "5%", "1 XB", "1..5", SIZE_MAX + 1, "1e3", True, None])
def test_what_is_no_size_is_named(text):
    with pytest.raises(ValueError, match="segment_size"):
        parse_size(text, name="segment_size")


def test_words_for_true_and_false():
    assert all(parse_switch(word) is True for word in (True, "1", "TRUE", " yes ", "on", "enable"))
    assert all(parse_switch(word) is False for word in (False, "0", "False", "no", "OFF", "disable"))
    assert parse_switch("maybe") is None
