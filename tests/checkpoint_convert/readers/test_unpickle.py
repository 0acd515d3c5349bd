"""The pickle machine: reads what pickle writes, runs nothing, and ends every forged stream with an error."""

from __future__ import annotations

import collections
import os
import pickle
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.model import Opaque
from checkpoint_convert.pickle_machine import Limits
from checkpoint_convert.plain_values import plain
from checkpoint_convert.symbols import Record, Symbol
from checkpoint_convert.unpickle import unpickle

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300)
)
KEYS = st.text(max_size=5) | st.integers() | st.tuples(st.integers(), st.text(max_size=3))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner),
    max_leaves=30,
)


def read(data: bytes, limits: Limits | None = None) -> object:
    value, end = unpickle(data, where="test", limits=limits)
    assert end == len(data)
    return value


@given(VALUES, st.integers(0, 5))
def test_plain_values_of_every_protocol(value: object, protocol: int) -> None:
    found = plain(read(pickle.dumps(value, protocol)), "test")
    assert found == value


@pytest.mark.parametrize("protocol", range(6))
def test_containers_of_the_standard_library(protocol: int) -> None:
    value = {
        "o": collections.OrderedDict(a=1),
        "d": collections.defaultdict(int, b=2),
        "c": 2 + 3j,
        "b": bytearray(b"x"),
    }
    found = plain(read(pickle.dumps(value, protocol)), "test")
    assert found == {"o": {"a": 1}, "d": {"b": 2}, "c": 2 + 3j, "b": b"x"}


class Unknown:
    """A class the machine may name and must not build."""

    built = 0

    def __init__(self) -> None:
        type(self).built += 1
        self.size = 3

    def __setstate__(self, state: object) -> None:
        type(self).built += 1


@pytest.mark.parametrize("protocol", range(6))
def test_an_unknown_class_is_noted_not_built(protocol: int) -> None:
    data = pickle.dumps({"args": Unknown(), "epoch": 3}, protocol)
    Unknown.built = 0
    raw = read(data)
    assert Unknown.built == 0
    assert isinstance(raw, dict)
    record = raw["args"]
    assert isinstance(record, Record)
    assert record.attributes() == {"size": 3}
    assert plain(raw, "test") == {"args": Opaque(f"{__name__}.Unknown"), "epoch": 3}


def canary_streams(canary: Path) -> dict[str, bytes]:
    """Every way a pickle can call `os.system`."""
    command = f"touch {canary}".encode()
    text = b"X" + struct.pack("<I", len(command)) + command
    name = b"cos\nsystem\n"
    stacked = b"\x8c\x02os\x8c\x06system\x93"
    return {
        "REDUCE": name + text + b"\x85R.",
        "REDUCE by STACK_GLOBAL": b"\x80\x04" + stacked + text + b"\x85R.",
        "INST": b"(" + text + b"ios\nsystem\n.",
        "OBJ": b"(" + name + text + b"o.",
        "NEWOBJ": b"\x80\x02" + name + text + b"\x85\x81.",
        "NEWOBJ_EX": b"\x80\x04" + name + text + b"\x85}\x92.",
        "builtins.eval": b"cbuiltins\neval\n" + text + b"\x85R.",
        "nested in a dict key": b"\x80\x02}" + name + text + b"\x85RK\x01s.",
        "BUILD on the result": name + text + b"\x85R}b.",
        "getattr chain": b"cbuiltins\ngetattr\ncos\n__dict__\nX\x06\x00\x00\x00system\x86R"
        + text
        + b"\x85R.",
    }


@pytest.mark.parametrize("name", canary_streams(Path("x")))
def test_nothing_is_executed(tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    data = canary_streams(canary)[name]
    value = plain(unpickle(data, where="test")[0], "test")
    assert not canary.exists()
    assert not isinstance(value, int)  # os.system's answer


def test_the_canary_would_sing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickle.loads(canary_streams(canary)["REDUCE"])
    assert canary.exists()


def test_no_module_is_imported() -> None:
    assert "antigravity" not in sys.modules
    value = read(b"cantigravity\nfly\n)R.")
    assert isinstance(value, Record)
    assert value.target == Symbol("antigravity", "fly")
    assert "antigravity" not in sys.modules


SAMPLE = {"w": [1.5, 2, "three", b"four", None, True], "n": {1: (2, 3)}, "u": Unknown(), "big": 1 << 80}


@pytest.mark.parametrize("protocol", range(6))
def test_every_cut_is_an_error_that_names_the_byte(protocol: int) -> None:
    data = pickle.dumps(SAMPLE, protocol)
    for length in range(len(data)):
        with pytest.raises(UnreadableError, match=r"test: not a readable pickle at byte \d+"):
            unpickle(data[:length], where="test")


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_ends_in_a_value_or_in_our_error(protocol: int, flips: list[tuple[int, int]]) -> None:
    data = bytearray(pickle.dumps(SAMPLE, protocol))
    for at, byte in flips:
        data[at % len(data)] = byte
    try:
        plain(unpickle(bytes(data), where="test")[0], "test")
    except UnreadableError as error:
        assert error.message and error.hint


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_noise_ends_in_a_value_or_in_our_error(data: bytes) -> None:
    try:
        plain(unpickle(data, where="test")[0], "test")
    except UnreadableError as error:
        assert error.message and error.hint


def refused(data: bytes, reason: str, limits: Limits | None = None) -> None:
    """An error, and soon."""
    started = time.process_time()
    with pytest.raises(UnreadableError, match=reason):
        plain(unpickle(data, where="test", limits=limits)[0], "test")
    assert time.process_time() - started < 5


def doubled(levels: int, pair: bytes) -> bytes:
    """A value that holds the value before it twice, `levels` times over."""
    data = b"\x80\x02]q\x00"
    for level in range(levels):
        get = b"h" + bytes([level])
        data += get + get + pair + b"q" + bytes([level + 1])
    return data


def test_shared_tuples_that_unfold_without_end() -> None:
    refused(doubled(60, b"\x86") + b".", "is no|unfinished|share one another")
    stream = b"\x80\x02]q\x00" + b"".join(b"h%ch%c\x86q%c0" % (n, n, n + 1) for n in range(60)) + b"0h\x3c."
    refused(stream, "share one another")


def test_shared_tuples_as_a_dictionary_key() -> None:
    stream = b"\x80\x02)q\x000" + b"".join(b"h%ch%c\x86q%c0" % (n, n, n + 1) for n in range(60))
    refused(stream + b"}h\x3cK\x01s.", "key is too large")


def test_a_key_nested_deeper_than_c_can_hash() -> None:
    refused(b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.", "key is too large")


def test_depth_and_cycles() -> None:
    refused(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", "nest deeper")
    refused(b"\x80\x02]q\x00h\x00a.", "contains itself")
    refused(b"\x80\x02}q\x00K\x01h\x00s.", "contains itself")


@pytest.mark.parametrize(
    "data, reason",
    [
        (b"\x8e" + struct.pack("<Q", 1 << 60) + b"x.", "promises"),
        (b"\x96" + struct.pack("<Q", (1 << 64) - 1) + b".", "promises"),
        (b"\x8d" + struct.pack("<Q", 1 << 50) + b".", "promises"),
        (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.", "frame"),
        (b"\x8b" + struct.pack("<I", 0x7FFFFFFF) + b".", "promises"),
        (b"I" + b"9" * 100_000 + b"\n.", "line does not end"),
        (b"L" + b"9" * 4090 + b"L\n0" * 3 + b".", "not a readable pickle"),
        (b"\x80\x09N.", "protocol 9"),
        (b"\x82\x01.", "no opcode"),
        (b"\x97.", "no opcode"),
        (b"h\x05.", "recalls value 5"),
        (b"Q.", "not a readable pickle"),
        (b"NQ.", "storages"),
        (b"K\x01K\x02.", "unfinished"),
        (b"(N.", "unfinished"),
        (b"0.", "not a readable pickle"),
        (b"", "ends too early"),
        *((b"N" + code + b"\x00\x00", "ends too early") for code in (b"r", b"j", b"J", b"X")),
        (b"NX" + struct.pack("<I", 1 << 31) + b"abc", "at byte 2: it promises 2147483648 bytes where 3"),
    ],
)
def test_forged_operands(data: bytes, reason: str) -> None:
    refused(data, reason)


def test_limits_bound_what_a_stream_may_build() -> None:
    small = Limits(objects=1000, stack=1000, memo=1000)
    refused(b"]" * 5000 + b".", "builds more than 1000|wait on its stack", small)
    refused(b"(" * 5000 + b".", "marks", small)
    refused(b"N" * 5000 + b".", "wait on its stack", small)
    refused(b"N" + b"".join(b"r" + struct.pack("<I", n) for n in range(5000)) + b".", "memoises more", small)


def test_speed_of_large_plain_data() -> None:
    """Two million numbers in seconds: sampler states and schedules are of this kind."""
    data = pickle.dumps([list(range(2_000_000))], 2)
    started = time.process_time()
    value: Any = plain(read(data), "test")
    assert value[0][-1] == 1_999_999
    assert time.process_time() - started < 10


def test_environment_is_left_alone() -> None:
    before = dict(os.environ)
    value = unpickle(b"cos\nputenv\nX\x03\x00\x00\x00KEYX\x03\x00\x00\x00VAL\x86R.", where="test")[0]
    assert isinstance(value, Record)
    assert dict(os.environ) == before
