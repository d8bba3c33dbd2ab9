"""Typed exceptions."""

import pickle

import pytest

import snowskin
from snowskin import errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-704, snowskin.NotFound),
        (-705, snowskin.Exists),
        (-200, snowskin.NoSpace),
        (-706, snowskin.Leased),
        (-901, snowskin.Timeout),
        (-900, snowskin.Unreachable),
        (-801, snowskin.Corrupt),
        (-600, snowskin.Invalid),
        (-400, snowskin.Invalid),
        (-1012, snowskin.NotSupported),
        (-800, snowskin.Error),
    ],
)
def test_a_code_has_its_class(code, kind):
    error = errors.from_mapping({"code": code, "name": "N", "message": "m", "key": "k", "detail": {"free": 1}})
    assert type(error) is kind
    assert isinstance(error, snowskin.Error)
    assert (error.code, error.key, error.detail, error.retry) == (code, "k", {"free": 1}, "never")


def test_an_error_survives_pickling():
    error = errors.from_mapping({"code": -200, "name": "NO_AVAILABLE_HANDLE", "message": "full", "detail": {"free": 1}})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is snowskin.NoSpace
    assert again.as_dict() == error.as_dict()
    assert str(again) == "NO_AVAILABLE_HANDLE (-200): full"


def test_wrong_arguments_of_a_store():
    with pytest.raises(TypeError, match="segment_siez"):
        snowskin.Store(segment_siez=1)
    with pytest.raises(snowskin.Invalid, match="segment_size"):
        snowskin.Store(segment_size="much")
    with pytest.raises(snowskin.NotSupported, match="ssd"):
        snowskin.Store(ssd="folder")
    with pytest.raises(snowskin.Invalid, match="timeout"):
        snowskin.Store(timeout=0)
    with pytest.raises(TypeError, match="master"):
        snowskin.Store(3)
