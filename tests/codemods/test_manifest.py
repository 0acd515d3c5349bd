"""The manifest that a rewrite leaves for `verify` and for `--undo`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small import write

from codemods.errors import CodemodError
from codemods.model import Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.record import read_records, write_rewrite
from codemods.sources import find_files

_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as F\n\n"
FILES = {"wrap.py": f"{_IMPORT}m = F(m, cpu_offload=c)\n", "pkg/other.py": f"{_IMPORT}m = F(m)\n"}


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


def test_a_damaged_manifest_is_an_error_that_says_so(tmp_path: Path) -> None:
    write(tmp_path, {".fsdp-migrate/manifest.json": "{"})
    with pytest.raises(CodemodError, match="is damaged"):
        read_records(tmp_path)
