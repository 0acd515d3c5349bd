"""Words of shell commands: where they end, and what the shell makes of them."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemods.configuration.nested import all_commands
from codemods.configuration.shell import commands, heredocs, read_script
from codemods.configuration.shell_words import read_word

WORDS = [
    ("plain;next", "plain", "plain"),
    ("a=b\\\n c", "a=b", "a=b"),
    ("a\\ b c", "a\\ b", "a b"),
    ("'it is $so' x", "'it is $so'", "it is $so"),
    ('"a \\" b"c|d', '"a \\" b"c', 'a " bc'),
    ("--x='{\"a\": 1}' y", "--x='{\"a\": 1}'", '--x={"a": 1}'),
    ('"" x', '""', ""),
    ("$X/y z", "$X/y", None),
    ("${A:-{b} c}d e", "${A:-{b} c}d", None),
    ('"$(echo "a b")" c', '"$(echo "a b")"', None),
    ("`a b`c d", "`a b`c", None),
    ("*.py a", "*.py", None),
    ('"a `b`" c', '"a `b`"', None),
    ("'open end", "'open end", "open en"),
    ("a\\", "a\\", "a"),
    ("${never closed", "${never closed", None),
    ('"', '"', None),
]


@pytest.mark.parametrize(("text", "raw", "said"), WORDS, ids=[text for text, _, _ in WORDS])
def test_a_word(text: str, raw: str, said: str | None) -> None:
    end, found = read_word(text, 0)
    assert (text[:end], found) == (raw, said)


@given(st.lists(st.text(st.sampled_from("ab -'\"\\=#$é\t"), min_size=1), min_size=1, max_size=6))
def test_quoted_words_are_what_python_quoted(words: list[str]) -> None:
    (command,) = commands("x " + " ".join(shlex.quote(word) for word in words))
    assert [word.text for word in command.words] == ["x", *words]


def test_commands_arrays_and_here_documents_in_their_places() -> None:
    text = "A=(one # no\n two)\ncat <<'END' > f.yaml; run\nx: (1)\nEND\nlast \\\n more\n"
    shown = [[word.raw for word in command.words] for command in commands(text)]
    assert shown == [["one", "two"], ["cat"], ["last", "more"]]
    (document,) = heredocs(text)
    assert text[document.span.start : document.span.end] == "x: (1)\n"
    assert document.reader == ("cat", "f.yaml", "run")
    assert all(text[w.span.start : w.span.end] == w.raw for c in commands(text) for w in c.words)


def test_a_script_is_read_once() -> None:
    text = "torchrun a.py --fsdp full_shard\n" * 3 + "cat <<EOF\nEOF\n# only here\n"
    read_script.cache_clear()
    all_commands.cache_clear()
    for _ in range(3):
        assert len(all_commands(text)) == 4
        assert len(heredocs(text)) == 1
    misses = read_script.cache_info().misses
    assert misses == 2, "the script, and the rest of the line that opens the here-document"


def test_long_scripts_are_read_in_linear_time() -> None:
    started = time.process_time()
    for piece in ("a'b'", "word ", '"x', "$(", "\\", "`", "${a}"):
        commands(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 10, "quadratic reading takes minutes"
