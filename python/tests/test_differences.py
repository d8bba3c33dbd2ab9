"""The table of differences in docs/compatibility.md is the one the tests know."""

import pytest

import differences


def test_the_page_lists_the_differences_of_the_tests():
    if not differences.PAGE.exists():
        pytest.skip("the tests were copied without the documents")
    page = differences.PAGE.read_text()
    assert differences.replaced(page) == page, "run python python/tests/differences.py --write"


def test_every_difference_says_what_each_side_does_and_why():
    for row in (row for rows in differences.collect() for row in rows):
        assert all(str(text).strip() for text in row)
