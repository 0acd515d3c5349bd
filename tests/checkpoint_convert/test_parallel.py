"""Threads share tensors: each is done once, and threads that write begin in different files."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_convert.parallel import Workers, _Shares


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 5), st.randoms())
def test_every_number_is_taken_once_whoever_is_faster(sizes: list[int], jobs: int, random: object) -> None:
    shares = _Shares(sizes, jobs)
    taken: list[int] = []
    threads = list(range(jobs))
    while threads:
        thread = random.choice(threads)  # type: ignore[attr-defined]
        number = shares.take(thread)
        if number is None:
            threads.remove(thread)
        else:
            taken.append(number)
    assert sorted(taken) == list(range(len(sizes)))


def test_large_ones_first_then_each_thread_a_run_of_its_own() -> None:
    sizes = [10] * 20 + [100, 200] + [10] * 20
    shares = _Shares(sizes, 2)
    assert [shares.take(0), shares.take(1)] == [21, 20]
    assert [(shares.take(0), shares.take(1)) for _ in range(3)] == [(0, 22), (1, 23), (2, 24)]
    assert [shares.take(1) for _ in range(17)] == list(range(25, 42))
    assert [shares.take(1), shares.take(0), shares.take(1)] == [19, 3, 18]  # from the end of the other's run


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_error_stops_all_and_is_the_one_raised(jobs: int) -> None:
    done: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        if number == 5:
            raise ValueError("number 5")
        with lock:
            done.append(number)

    with pytest.raises(ValueError, match="number 5"):
        Workers(jobs).run(work, [1] * 2000)
    assert 5 not in done and len(done) < 2000
