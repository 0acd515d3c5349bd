"""Files that are not as one expects: each is rewritten as it stands or left alone with a reason."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path

import pytest

from codemods.editing.apply import shifted
from codemods.model import Options, Outcome, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files

PLAIN = '''\
"""Trains."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def train(model, batches):
    model = FSDP(model, use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        model(batch).sum().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        state = model.state_dict()
    torch.save(state, "model.pt")
    return model
'''


def rewrite(folder: Path) -> Rewrite:
    return plan_rewrite(folder, find_files(folder, [folder]), Options())


def rewritten(folder: Path, data: bytes) -> bytes:
    """What becomes of one file."""
    (folder / "train.py").write_bytes(data)
    done = rewrite(folder)
    assert done.skipped == {}
    (change,) = (change for change in done.changes if change.path == "train.py")
    ast.parse(change.after)
    return change.after


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The plain file rewritten."""
    text = rewritten(tmp_path_factory.mktemp("plain"), PLAIN.encode()).decode()
    assert "fully_shard(model)" in text
    assert "get_model_state_dict(" in text
    return text


def test_crlf(expected: str, tmp_path: Path) -> None:
    after = rewritten(tmp_path, PLAIN.replace("\n", "\r\n").encode())
    assert after.decode() == expected.replace("\n", "\r\n")


def test_carriage_returns_alone(expected: str, tmp_path: Path) -> None:
    after = rewritten(tmp_path, PLAIN.replace("\n", "\r").encode())
    assert after.decode() == expected.replace("\n", "\r")


def test_mixed_line_endings_of_kept_lines_stay(tmp_path: Path) -> None:
    text = PLAIN.replace("    return model\n", "    return model\r\n").replace(
        '"""Trains."""\n', '"""Trains."""\r\n'
    )
    after = rewritten(tmp_path, text.encode())
    assert after.startswith(b'"""Trains."""\r\n')
    assert after.endswith(b"    return model\r\n")
    assert after.count(b"\r\n") == 2


def test_byte_order_mark(expected: str, tmp_path: Path) -> None:
    after = rewritten(tmp_path, b"\xef\xbb\xbf" + PLAIN.encode())
    assert after == b"\xef\xbb\xbf" + expected.encode()


def test_tabs(expected: str, tmp_path: Path) -> None:
    after = rewritten(tmp_path, PLAIN.replace("    ", "\t").encode())
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(expected))
    kept = [
        line for line in PLAIN.replace("    ", "\t").splitlines() if line in expected.replace("    ", "\t")
    ]
    assert set(kept) <= set(after.decode().splitlines())


def test_latin_1_with_a_coding_line(expected: str, tmp_path: Path) -> None:
    text = PLAIN.replace('"""Trains."""', '# -*- coding: latin-1 -*-\n"""Größe: trains."""  # für später')
    after = rewritten(tmp_path, text.encode("latin-1"))
    wanted = expected.replace(
        '"""Trains."""', '# -*- coding: latin-1 -*-\n"""Größe: trains."""  # für später'
    )
    assert after == wanted.encode("latin-1")


def test_multibyte_characters_before_the_code_on_its_line(tmp_path: Path) -> None:
    text = PLAIN.replace("model.clip_grad_norm_(1.0)", "größe = '日本語🚀'; model.clip_grad_norm_(1.0)")
    after = rewritten(tmp_path, text.encode()).decode()
    assert "größe = '日本語🚀'; " in after
    assert "clip_grad_norm_(model.parameters(), 1.0)" in after


def test_form_feeds(expected: str, tmp_path: Path) -> None:
    text = PLAIN.replace("\n\n\ndef train", "\n\f\n\ndef train")
    text = text.replace("        optimizer.step", "\f        optimizer.step")
    after = rewritten(tmp_path, text.encode()).decode()
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(expected))
    assert after.count("\f") == text.count("\f") == 2


SEPARATORS = ["\x0b", "\x1c", "\x85", "\u2028"]


@pytest.mark.parametrize("separator", SEPARATORS, ids=lambda c: f"U+{ord(c):04X}")
def test_characters_that_are_line_ends_to_str_but_not_to_python(
    separator: str, expected: str, tmp_path: Path
) -> None:
    text = PLAIN.replace(
        '"""Trains."""', f'"""Trains{separator}."""\nNAME = "a{separator}b"  # c{separator}d'
    )
    after = rewritten(tmp_path, text.encode()).decode()
    wanted = expected.replace(
        '"""Trains."""', f'"""Trains{separator}."""\nNAME = "a{separator}b"  # c{separator}d'
    )
    assert after == wanted


@pytest.mark.parametrize(
    "separator", ["\f", "\x0b", "\x1c", "\x85", "\u2028"], ids=lambda c: f"U+{ord(c):04X}"
)
def test_todos_below_such_characters_are_found_again(separator: str, tmp_path: Path) -> None:
    text = PLAIN.replace('"""Trains."""', f'"""Trains{separator}."""') + "\nkept = model._handles\n"
    after = rewritten(tmp_path, text.encode())
    assert after.count(b"TODO") == 1
    (tmp_path / "train.py").write_bytes(after)
    assert rewrite(tmp_path).changes == ()


@pytest.mark.parametrize(
    "separator", ["\f", "\x0b", "\x1c", "\x85", "\u2028"], ids=lambda c: f"U+{ord(c):04X}"
)
@pytest.mark.parametrize("columns", [4, -4])
def test_moved_lines_keep_such_characters_in_strings(columns: int, separator: str) -> None:
    text = f'    a = "b{separator}    c"\n    d = 1\n'
    moved = shifted(text, columns, first_line=True)
    assert moved == text.replace("    a", " " * (4 + columns) + "a").replace(
        "    d", " " * (4 + columns) + "d"
    )


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n", "\n    ", "\n# more"])
def test_a_todo_at_the_end_of_a_file(end: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import fsdp\n# TODO(fsdp-migrate FM507): gone{end}", newline="")
    assert [(r.finding.code, r.finding.place.line) for r in rewrite(tmp_path).reported] == [("FM507", 2)]


def test_no_newline_at_the_end(expected: str, tmp_path: Path) -> None:
    assert rewritten(tmp_path, PLAIN.rstrip("\n").encode()).decode() == expected.rstrip("\n")


def test_backslash_continuations(tmp_path: Path) -> None:
    text = PLAIN.replace(
        "model = FSDP(model, use_orig_params=True)",
        "model = \\\n        FSDP(model, \\\n  use_orig_params=True)",
    )
    assert "fully_shard(model)" in rewritten(tmp_path, text.encode()).decode()


def test_statements_on_one_line(tmp_path: Path) -> None:
    text = PLAIN.replace("FULL_STATE_DICT):\n        state", "FULL_STATE_DICT): state")
    text = text.replace("        optimizer.step()", "        optimizer.step(); model.clip_grad_norm_(2.0)")
    after = rewritten(tmp_path, text.encode()).decode()
    assert "optimizer.step(); " in after


def test_big_file(tmp_path: Path) -> None:
    words = "nothing to do with it " * 20
    filler = "".join(
        f"def filler_{i}(a, b):\n    name = '{words}'\n    return sum([a, b, {i}]) * len(name)\n\n\n"
        for i in range(1_000)
    )
    # A table of three thousand rows, and one string of eight million characters.
    rows = "".join(f"    ('{words}', {i}),\n" for i in range(3_000))
    data = f'TABLE = [\n{rows}]\nWORDS = """\n' + f"{words}\n" * 20_000 + '"""\n\n\n'
    filler += data
    text = PLAIN.replace("def train", filler + "def train")
    assert len(text) > 10_000_000
    started = time.process_time()
    after = rewritten(tmp_path, text.encode()).decode()
    assert filler in after
    assert "fully_shard(model)" in after
    assert time.process_time() - started < 30


def test_deep_nesting_is_reported(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("import torch.distributed.fsdp\nx = " + "(" * 5000 + ")" * 5000 + "\n")
    done = rewrite(tmp_path)
    assert "cannot be parsed" in done.skipped["deep.py"]


@pytest.mark.parametrize("depth", [150, 900], ids=["attributes", "sums"])
def test_long_chains_do_not_stop_the_run(depth: int, tmp_path: Path) -> None:
    chain = "model" + ".x" * depth if depth == 150 else " + ".join(["model"] * depth)
    (tmp_path / "a.py").write_text(PLAIN + f"\n\ndef more(model):\n    return ({chain}).no_sync()\n")
    (tmp_path / "b.py").write_text(PLAIN)
    done = rewrite(tmp_path)
    assert "b.py" in {change.path for change in done.changes}
    assert {"a.py"} >= set(done.skipped)
    assert set(done.skipped) | {change.path for change in done.changes} >= {"a.py", "b.py"}


BAD = {
    "syntax.py": (b"from torch.distributed.fsdp import FSDP\ndef f(:\n", "cannot be parsed"),
    "utf8.py": (b"# fsdp \xff\xfe\nx = 1\n", "cannot be"),
    "codec.py": (b"# -*- coding: no-such-codec -*-\n# fsdp\n", "cannot be parsed"),
    "two_codecs.py": (b"\xef\xbb\xbf# -*- coding: latin-1 -*-\n# fsdp\n", "cannot be parsed"),
    "nul.py": (b"# fsdp\nx = '\0'\n", "cannot be parsed"),
    "indent.py": (b"# fsdp\nif 1:\n\tx = 1\n        y = 2\n", "cannot be parsed"),
    "python2.py": (b"# fsdp\nprint 'hello'\n", "cannot be parsed"),
    "binary.py": (bytes(range(256)) * 10 + b"fsdp", "cannot be"),
}


@pytest.mark.parametrize("name", BAD)
def test_file_that_python_cannot_read_is_reported_and_the_rest_goes_on(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    data, why = BAD[name]
    (tmp_path / name).write_bytes(data)
    done = rewrite(tmp_path)
    assert list(done.skipped) == [name]
    assert why in done.skipped[name]
    assert [r.finding.code for r in done.open_findings if r.finding.place.path == name] == ["FM901"]
    assert [change.path for change in done.changes] == ["train.py"]


def test_bad_file_that_does_not_concern_us_is_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    (tmp_path / "template.py").write_text("def {{ name }}(:\n")
    assert rewrite(tmp_path).skipped == {}


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    # Reading this fails for everyone, also for root, to whom permissions mean nothing.
    (tmp_path / "memory.py").symlink_to("/proc/self/mem")
    done = rewrite(tmp_path)
    assert "cannot be read" in done.skipped["memory.py"]
    assert [change.path for change in done.changes] == ["train.py"]
    assert any(r.finding.code == "FM901" and r.outcome is Outcome.TODO for r in done.reported)


def test_symbolic_links_in_circles(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "train.py").write_text(PLAIN)
    (package / "loop").symlink_to(tmp_path, target_is_directory=True)
    (package / "self.py").symlink_to("self.py")
    (package / "one.py").symlink_to("two.py")
    (package / "two.py").symlink_to("one.py")
    (package / "gone.py").symlink_to("nowhere.py")
    assert find_files(tmp_path, [tmp_path]) == ["package/train.py"]
    assert [change.path for change in rewrite(tmp_path).changes] == ["package/train.py"]


def test_link_to_a_file_of_the_target_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    (tmp_path / "also.py").symlink_to("train.py")
    assert [change.path for change in rewrite(tmp_path).changes] == ["train.py"]


@pytest.mark.parametrize("name", ["with space.py", "größe.py", "quote'\".py", "-dash.py", "new\nline.py"])
def test_odd_file_names(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PLAIN)
    assert [change.path for change in rewrite(tmp_path).changes] == [name]


def test_file_name_that_is_no_utf_8(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    (tmp_path / name).write_text(PLAIN)
    assert [change.path for change in rewrite(tmp_path).changes] == [name]


def test_empty_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_bytes(b"")
    (tmp_path / "folder.py").mkdir()
    done = rewrite(tmp_path)
    assert (done.searched, done.read, done.changes) == (1, 0, ())


def test_settings_whose_lines_end_in_carriage_returns_alone_are_reported(tmp_path: Path) -> None:
    text = "distributed_type: FSDP\rfsdp_config:\r  fsdp_sharding_strategy: FULL_SHARD\r"
    (tmp_path / "fsdp.yaml").write_bytes(text.encode())
    done = rewrite(tmp_path)
    assert done.skipped == {"fsdp.yaml": "cannot be parsed: its lines end in carriage returns alone"}
    assert done.changes == ()
