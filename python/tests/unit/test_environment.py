"""What the environment says, without a store."""

import logging

from snowskin import environment


def test_a_variable_with_a_slip_is_named_with_the_nearest_known_one(caplog, monkeypatch):
    monkeypatch.setattr(environment, "_told", set())
    given = {"SNOWSKIN_STRICT_BUFFER": "1", "SNOWSKIN_LOG": "info", "OTHER": "x"}
    with caplog.at_level(logging.WARNING, "snowskin"):
        assert "strict_buffers" not in environment.settings(given)
        environment.settings(given)
    assert [record.getMessage() for record in caplog.records] == [
        "SNOWSKIN_STRICT_BUFFER is not known and has no effect; the nearest known one is SNOWSKIN_STRICT_BUFFERS"
    ]


def test_known_variables_and_those_of_tests_are_not_named():
    given = dict.fromkeys([*environment.KNOWN, "SNOWSKIN_TEST_PEER", "SNOWSKIN_CLIENTS_VENV", "MC_LOG_LEVEL"], "1")
    assert environment.unknown(given) == {}
