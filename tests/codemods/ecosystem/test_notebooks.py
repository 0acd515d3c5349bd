"""Notebooks: the rules work across cells; magics, outputs, metadata and the JSON's own form stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool import Result, rewrite_in_place

from codemods.editing.notebooks import read_notebook
from codemods.model import Options, Outcome
from codemods.plan import plan_rewrite

Json = dict[str, Any]


def cell(source: str, *, joined: bool = False) -> Json:
    return {
        "cell_type": "code",
        "execution_count": 3,
        "id": "a1",
        "metadata": {"tags": ["x"]},
        "outputs": [{"name": "stdout", "output_type": "stream", "text": ["FSDP über alles\n", "<b>%</b>"]}],
        "source": source if joined else source.splitlines(keepends=True),
    }


def notebook(*sources: str, joined: bool = False, language: str = "python") -> Json:
    cells = [{"cell_type": "markdown", "metadata": {}, "source": ["# FSDP\n", "%magic"]}]
    return {
        "cells": [*cells, *(cell(source, joined=joined) for source in sources)],
        "metadata": {"kernelspec": {"display_name": "x", "language": language, "name": "k"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


TRAINING = (
    "!pip install torch \\\n   more\n%matplotlib inline\nimport torch\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "from torch.distributed.fsdp import ShardingStrategy",
    "%%bash\nls fsdp",
    "from model import build\nfiles = !ls\nif files:\n    %time build()\nmodel = build()",
    "%%time\nmodel = FSDP(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)  # wrap\nmodel?",
    "norm = model.clip_grad_norm_(1.0)\n",
)
CONVERTED = (
    "!pip install torch \\\n   more\n%matplotlib inline\nimport torch\nfrom torch.distributed.fsdp import "
    "fully_shard",
    "%%bash\nls fsdp",
    "from model import build\nfiles = !ls\nif files:\n    %time build()\nmodel = build()",
    "%%time\nfully_shard(model, reshard_after_forward=False)  # wrap\nmodel?",
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()\n",
)


def rewritten(folder: Path) -> Result:
    return rewrite_in_place(folder)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("indent", [1, 2, 4, None])
@pytest.mark.parametrize("end", ["\n", ""])
def test_only_the_code_changes(tmp_path: Path, joined: bool, indent: int | None, end: str) -> None:
    path = tmp_path / "train.ipynb"

    def text(*sources: str) -> str:
        return json.dumps(notebook(*sources, joined=joined), indent=indent, ensure_ascii=False) + end

    path.write_text(text(*TRAINING))
    result = rewritten(tmp_path)
    assert result.open_codes == []
    assert path.read_text() == text(*CONVERTED)
    rewritten(tmp_path)
    assert path.read_text() == text(*CONVERTED)


def test_findings_name_the_cell_and_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    sources = (
        "from accelerate import FullyShardedDataParallelPlugin",
        "import copy\n\np = FullyShardedDataParallelPlugin(sharding_strategy='NO_SHARD')",
    )
    path.write_text(json.dumps(notebook(*sources), indent=1))
    lines = path.read_text().splitlines()
    result = rewritten(tmp_path)
    (found,) = [line for line in result.lines if "FM621" in line]
    number = int(found.split(":")[1])
    assert "NO_SHARD" in lines[number - 1]
    assert "(cell 3, line 3" in found


def test_a_todo_goes_into_the_cell(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    call = "FullyShardedDataParallelPlugin(sharding_strategy='NO_SHARD')"
    path.write_text(
        json.dumps(notebook("from accelerate import FullyShardedDataParallelPlugin", f"p = {call}"), indent=1)
    )
    assert rewritten(tmp_path).open_codes == ["FM621"]
    source = json.loads(path.read_text())["cells"][2]["source"]
    assert source[0].startswith("# TODO(fsdp-migrate FM621): ")
    assert source[-1] == f"p = {call}"
    text = path.read_text()
    assert rewritten(tmp_path).open_codes == ["FM621"]
    assert path.read_text() == text


def test_modules_and_notebooks_see_each_other(tmp_path: Path) -> None:
    (tmp_path / "wrapping.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def wrapped(model):\n    model = FSDP(model)\n    return model\n"
    )
    source = "from wrapping import wrapped\nmodel = wrapped(make())\nmodel.clip_grad_norm_(1.0)"
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook(source), indent=1))
    rewritten(tmp_path)
    assert "clip_grad_norm_(model.parameters(), 1.0)" in (tmp_path / "train.ipynb").read_text()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(notebook("x <- 'fsdp'", language="R")),
        json.dumps(notebook("print('fsdp')\nif:\n  'not python'".replace("fsdp", "sharded"))),
        json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5, "note": "fsdp"}),
    ],
)
def test_notebooks_without_python_of_ours_are_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(text)
    assert rewritten(tmp_path).codes == []
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text",
    ["{'fsdp': 1}", '{"worksheets": [], "fsdp": 1}', json.dumps(notebook("def fsdp(:\n    pass"))],
)
def test_notebooks_that_cannot_be_read_are_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(text)
    assert rewritten(tmp_path).codes == ["FM901"]
    assert path.read_text() == text


SOURCES = st.lists(
    st.lists(
        st.sampled_from(
            ["x = 1", "", "!ls -l \\", "  %time y", "%%time", "# é\u2028", "y = '''", "z = !a | b", "q?"]
        )
    ).map("\n".join),
    max_size=4,
)


@given(sources=SOURCES, joined=st.booleans(), indent=st.sampled_from([None, 1]))
def test_an_unchanged_module_gives_the_notebook_back_byte_for_byte(
    sources: list[str], joined: bool, indent: int | None
) -> None:
    data = json.dumps(notebook(*sources, joined=joined), indent=indent).encode()
    read = read_notebook("a.ipynb", data)
    assert read.encoded(read.text) == data
    compile(read.text, "a.ipynb", "exec")


def test_what_a_comment_suppresses_stands_where_the_finding_does(tmp_path: Path) -> None:
    kept = TRAINING[3].replace("%%time\n", "# fsdp-migrate: ignore[FM101] not yet\n")
    file = tmp_path / "train.ipynb"
    file.write_text(json.dumps(notebook(*TRAINING[:3], kept), indent=1))
    done = plan_rewrite(tmp_path, ["train.ipynb"], Options())
    (comment,) = done.suppressions
    ignored = [r.finding for r in done.reported if r.outcome is Outcome.IGNORED]
    assert comment.findings == tuple((found.code, found.place.line) for found in ignored) != ()
    lines = file.read_text().splitlines()
    assert "ignore[FM101]" in lines[comment.line - 1]
    assert "FSDP(model" in lines[comment.findings[0][1] - 1]
