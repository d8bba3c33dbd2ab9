"""`snowskin.aio.Store`: results, turns and cancellation."""

import asyncio
import threading

import pytest

import snowskin
from snowskin import aio


@pytest.fixture
def run():
    return lambda main: asyncio.run(asyncio.wait_for(main, 30))


def embedded(**more):
    return aio.Store("", segment_size="64 MiB", **more)


class Gate:
    """A blocking store whose get waits until the test lets it go."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.ended = 0

    def get(self, key, timeout=None):
        self.begun.release()
        assert self.go.wait(20)
        self.ended += 1
        return key.encode()

    def close(self):
        pass

    async def has_begun(self):
        await asyncio.get_running_loop().run_in_executor(None, self.begun.acquire)


def gated(**more):
    store = aio.Store("", **more)
    store._opened = gate = Gate()
    return store, gate


def test_the_methods_are_coroutines(run):
    async def main():
        async with embedded() as store:
            await store.put("a", b"1")
            assert await store.get("a") == b"1"
            assert await store.exists("a") is True
            assert await store.exists(["a", "b"]) == [True, False]
            assert await store.size("a") == 1
            buffer = bytearray(1)
            assert await store.get_into("a", buffer) == 1 and buffer == b"1"
            assert await store.put_batch({"b": b"2"}) == [None]
            assert (await store.get_batch(["b", "c"]))[0] == b"2"
            assert [key async for key in store.keys()] == ["a", "b"]
            with await store.view("a") as view:
                assert bytes(view) == b"1"
            with pytest.raises(snowskin.NotFound):
                await store.get("c")
            assert store.last_error()["code"] == -704
            await store.remove("a", force=True)
            assert await store.remove_all(force=True) == 1
            assert (await store.stat())["objects"] == 0
            with await store.register(bytearray(4096)):
                pass
        assert store.closed
        with pytest.raises(snowskin.Invalid):
            await store.get("a")

    run(main())


def test_many_calls_at_once(run):
    async def main():
        async with embedded(workers=3) as store:
            await asyncio.gather(*(store.put(f"k{i}", b"v" * 100) for i in range(200)))
            assert len([key async for key in store.keys("k")]) == 200

    run(main())


def test_a_call_opens_the_store_once(run):
    async def main():
        store = embedded()
        await asyncio.gather(*(store.put(f"k{i}", b"v") for i in range(8)))
        assert (await store.stat())["objects"] == 8
        await store.close()
        await store.close()

    run(main())


def test_a_cancelled_call_ends_before_the_cancellation_is_seen(run):
    async def main():
        store, gate = gated()
        task = asyncio.ensure_future(store.get("k"))
        await gate.has_begun()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done and gate.ended == 0
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.ended == 1
        assert await store.get("next") == b"next"
        await store.close()

    run(main())


def test_a_call_that_waits_for_its_turn_is_cancelled_at_once(run):
    async def main():
        store, gate = gated(workers=1)
        first = asyncio.ensure_future(store.get("first"))
        await gate.has_begun()
        second = asyncio.ensure_future(store.get("second"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.go.set()
        assert await first == b"first"
        # The turn of the cancelled one was not lost.
        assert await store.get("third") == b"third"
        assert gate.ended == 2
        await store.close()

    run(main())


def test_a_turn_that_does_not_come_is_a_timeout(run):
    async def main():
        store, gate = gated(workers=1, timeout=0.05)
        first = asyncio.ensure_future(store.get("first"))
        await gate.has_begun()
        with pytest.raises(snowskin.Timeout):
            await store.get("second")
        gate.go.set()
        assert await first == b"first"
        assert await store.get("third") == b"third"
        await store.close()

    run(main())


def test_a_failed_opening_is_raised_and_can_be_tried_again(run):
    async def main():
        store = aio.Store("127.0.0.1:1", timeout=0.2)
        for _ in range(2):
            with pytest.raises(snowskin.Error):
                await store.open()
        await store.close()

    run(main())


def test_wrong_arguments_are_found_before_anything_is_opened():
    with pytest.raises(snowskin.Invalid, match="workers"):
        aio.Store("", workers=0)
    with pytest.raises(TypeError, match="nothing"):
        aio.Store(nothing=1)
