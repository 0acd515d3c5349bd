"""The manifest and the originals: written first, merged by a second rewrite, restored by undo."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from small import write

from codemods.errors import CodemodError
from codemods.model import FileChange, Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.record import digest, read_records, require_complete
from codemods.sources import find_files
from codemods.undo import restore
from codemods.write import write_rewrite

_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as F\n\n"
FILES = {"wrap.py": f"{_IMPORT}m = F(m, cpu_offload=c)\n", "pkg/other.py": f"{_IMPORT}m = F(m)\n"}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rewritten(folder: Path) -> Rewrite:
    done = plan_rewrite(folder, find_files(folder, [folder]), Options())
    write_rewrite(folder, done, tool="0.1.0", target_torch="2.6")
    return done


def test_manifest_says_what_was_changed(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    done = rewritten(tmp_path)
    manifest = json.loads((tmp_path / ".fsdp-migrate/manifest.json").read_text())
    assert manifest["version"] == 1 and manifest["tool"] == "0.1.0" and manifest["target_torch"] == "2.6"
    files = {f["path"]: f for f in manifest["files"]}
    assert sorted(files) == ["fsdp2_sharding.py", "pkg/other.py", "wrap.py"]
    assert (
        files["fsdp2_sharding.py"]["original"] is None and files["fsdp2_sharding.py"]["sha256_before"] is None
    )
    kept = tmp_path / ".fsdp-migrate" / files["pkg/other.py"]["original"]
    assert kept.read_text() == FILES["pkg/other.py"]
    forms = {(s["path"], s["line"]): s["form"] for s in manifest["wrap_sites"]}
    assert forms == {("pkg/other.py", 3): "inline", ("wrap.py", 3): "helper"}
    assert (tmp_path / ".fsdp-migrate/.gitignore").read_text() == "*\n"
    assert len(manifest["findings"]) == len(done.reported)


def test_undo_restores_every_byte_and_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    before = contents(tmp_path)
    rewritten(tmp_path)
    assert contents(tmp_path) != before
    restored = restore(tmp_path)
    assert restored.restored == ["pkg/other.py", "wrap.py"] and restored.removed == ["fsdp2_sharding.py"]
    assert contents(tmp_path) == before


def test_a_second_rewrite_keeps_the_first_originals(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    before = contents(tmp_path)
    rewritten(tmp_path)
    later = (tmp_path / "wrap.py").read_text() + "n = F(n)\n"
    later = later.replace(
        "import shard_model",
        "import shard_model\nfrom torch.distributed.fsdp import FullyShardedDataParallel as F",
    )
    (tmp_path / "wrap.py").write_text(later)
    write(tmp_path, {"new.py": FILES["pkg/other.py"]})
    rewritten(tmp_path)
    records = {r.path: r for r in read_records(tmp_path)}
    assert sorted(records) == ["fsdp2_sharding.py", "new.py", "pkg/other.py", "wrap.py"]
    original = records["wrap.py"].original
    assert original is not None and (tmp_path / ".fsdp-migrate" / original).read_text() == FILES["wrap.py"]
    restore(tmp_path)
    # What was written between the two rewrites is nobody's to throw away.
    kept = {"new.py": FILES["pkg/other.py"].encode(), "wrap.py": later.encode()}
    assert contents(tmp_path) == {**before, **kept}


def test_interrupted_between_files_everything_can_be_restored(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    before = contents(tmp_path)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    seen: list[str] = []

    def interrupt(path: str) -> None:
        seen.append(path)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6", on_file=interrupt)
    after = contents(tmp_path)
    changed = [n for n in after if after[n] != before.get(n) and not n.startswith(".fsdp-migrate")]
    assert changed == [seen[0]]
    restore(tmp_path)
    assert contents(tmp_path) == before


def test_a_file_edited_since_is_not_overwritten_by_undo(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    rewritten(tmp_path)
    (tmp_path / "wrap.py").write_text("mine\n")
    with pytest.raises(CodemodError, match=r"edited since the rewrite: wrap\.py"):
        restore(tmp_path)
    assert (tmp_path / "wrap.py").read_text() == "mine\n"
    assert "fully_shard" in (tmp_path / "pkg/other.py").read_text()


def test_a_file_that_changed_meanwhile_stops_the_write(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    (tmp_path / "wrap.py").write_text("mine\n")
    with pytest.raises(CodemodError, match="changed while it was being rewritten"):
        write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6")
    assert not (tmp_path / ".fsdp-migrate").exists()


@pytest.mark.parametrize("protected", ["pkg/other.py", "pkg"])
def test_where_one_file_is_protected_none_is_written(
    protected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The superuser may write everywhere, so the question is answered for it here."""
    write(tmp_path, FILES)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    assert {"wrap.py", "pkg/other.py"} <= {change.path for change in done.changes}
    before = contents(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / protected)
    with pytest.raises(CodemodError, match=f"{protected} is read-only; nothing was written") as told:
        write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6")
    assert "name the files to rewrite" in told.value.hint
    assert contents(tmp_path) == before


def test_what_cannot_be_written_is_said_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "x = 1\n", "sub": "a file where a folder is needed\n"})
    change = FileChange("a.py", b"x = 1\n", b"x = 2\n")
    blocked = FileChange("sub/b.py", None, b"y\n")
    with pytest.raises(CodemodError, match="cannot be written") as told:
        write_rewrite(tmp_path, Rewrite((change, blocked), (), (), 1, 1), tool="0.1.0", target_torch="2.6")
    assert "--undo" in told.value.hint
    assert restore(tmp_path).restored == ["a.py"]
    assert sorted(contents(tmp_path)) == ["a.py", "sub"]


@pytest.mark.parametrize("has_record", [False, True])
def test_where_no_file_was_replaced_nothing_is_left_to_undo(has_record: bool, tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "x = 1\n", "sub": "a file where a folder is needed\n"})
    if has_record:
        change = FileChange("a.py", b"x = 1\n", b"x = 2\n")
        write_rewrite(tmp_path, Rewrite((change,), (), (), 1, 1), tool="0.1.0", target_torch="2.6")
    before = read_records(tmp_path)
    blocked = FileChange("sub/b.py", None, b"y\n")
    with pytest.raises(CodemodError, match="cannot be written") as told:
        write_rewrite(tmp_path, Rewrite((blocked,), (), (), 1, 1), tool="0.1.0", target_torch="2.6")
    assert "No file was changed" in told.value.hint and "--undo" not in told.value.hint
    require_complete(tmp_path)
    assert read_records(tmp_path) == before and len(before) == has_record
    assert (tmp_path / ".fsdp-migrate").exists() is has_record


@pytest.mark.parametrize("field", ["path", "original", "edited"])
@pytest.mark.parametrize("name", ["../victim.py", "/tmp/victim.py", "a/../../victim.py"])
def test_a_record_that_leads_outside_is_refused(field: str, name: str, tmp_path: Path) -> None:
    """A repository that is cloned may bring a record of its own."""
    folder = tmp_path / "project"
    (folder / ".fsdp-migrate").mkdir(parents=True)
    (tmp_path / "victim.py").write_text("mine")
    entry = {"path": "a.py", "sha256_before": None, "sha256_after": digest(b"mine"), "original": None}
    record = {"version": 1, "files": [{**entry, field: name}]}
    (folder / ".fsdp-migrate" / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(CodemodError, match="lies outside"):
        restore(folder)
    assert (tmp_path / "victim.py").read_text() == "mine"


def test_a_damaged_manifest_is_an_error_that_says_so(tmp_path: Path) -> None:
    write(tmp_path, {".fsdp-migrate/manifest.json": "{"})
    with pytest.raises(CodemodError, match="is damaged"):
        read_records(tmp_path)


def test_a_manifest_that_cannot_be_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / ".fsdp-migrate" / "manifest.json").mkdir(parents=True)
    with pytest.raises(CodemodError, match="cannot be read"):
        read_records(tmp_path)
