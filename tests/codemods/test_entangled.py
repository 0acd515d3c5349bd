"""A tree in which everything leads to everything ends soon, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.analysis import link, spread
from codemods.errors import CodemodError
from codemods.model import Options
from codemods.plan import plan_rewrite

FILES = {
    "vendored/lib/shard.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    "def shard(model):\n    return FSDP(model)\n",
    "train.py": "from vendored.lib.shard import shard\n\n\ndef main(model):\n    model = shard(model)\n"
    "    print(model.state_dict())\n",
}


@pytest.mark.parametrize(
    ("module", "limit"), [(link, "_MOST_QUESTIONS"), (spread, "_MOST_STEPS")], ids=["questions", "steps"]
)
def test_too_many_steps_end_the_run_and_say_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, limit: str
) -> None:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert len(plan_rewrite(tmp_path, sorted(FILES), Options()).changes) == 2

    monkeypatch.setattr(module, limit, 2)
    with pytest.raises(CodemodError) as refused:
        plan_rewrite(tmp_path, sorted(FILES), Options())

    assert refused.value.message == (
        "2 files import each other so closely that sharded models cannot be followed through all of them; "
        "nothing was written. Most of them are in: . (1), vendored/lib (1)"
    )
    assert "--exclude PATTERN" in refused.value.hint
    assert {path: (tmp_path / path).read_text() for path in FILES} == FILES
