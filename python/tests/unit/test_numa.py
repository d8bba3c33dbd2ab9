"""Binding a thread to a memory node."""

import logging
import os
import threading

import pytest

from snowskin.mooncake.numa import bind_to_numa_node, parse_list


@pytest.mark.parametrize(("text", "numbers"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set()), ("", set())])
def test_lists_of_the_kernel(text, numbers):
    assert parse_list(text) == numbers


def test_a_node_that_is_not_there_changes_nothing(caplog):
    before = os.sched_getaffinity(0)
    with caplog.at_level(logging.WARNING, "snowskin"):
        bind_to_numa_node(4096)
        bind_to_numa_node(-1)
    assert os.sched_getaffinity(0) == before
    assert len(caplog.records) == 2


def test_only_the_calling_thread_is_bound():
    before = os.sched_getaffinity(0)
    thread = threading.Thread(target=bind_to_numa_node, args=(0,))
    thread.start()
    thread.join()
    assert os.sched_getaffinity(0) == before
