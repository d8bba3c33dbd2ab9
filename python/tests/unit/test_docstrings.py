"""Every public name of the native module says what it does."""

import snowskin._native as native


def test_every_public_member_has_a_docstring():
    missing = [
        f"{name}.{member}"
        for name in ("MooncakeStoreBase", "Pool", "TransferEngine", "ReplicateConfig", "BufferHandle")
        for member in dir(getattr(native, name))
        if not member.startswith("_") and not getattr(getattr(native, name), member).__doc__
    ]
    assert missing == []
