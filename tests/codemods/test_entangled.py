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


def test_methods_of_objects_that_are_not_told_apart_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty classes with a method of one name, and a value of theirs that goes through sixty names."""
    classes = "".join(
        f"class Part{n}:\n    def __init__(self, model):\n        self.model = FSDP(model)\n\n"
        f"    def forward(self):\n        return self.model\n\n\n"
        for n in range(60)
    )
    names = "".join(f"    f{n + 1} = f{n}\n" for n in range(60))
    made = "".join(f"    parts.append(Part{n}(model))\n" for n in range(60))
    (tmp_path / "parts.py").write_text(
        f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n{classes}"
        f"def main(model):\n    parts = []\n{made}    f0 = parts[0].forward\n{names}"
        "    print(f60().state_dict())\n"
    )
    monkeypatch.setattr(spread, "_MOST_STEPS", 2_500)
    change = plan_rewrite(tmp_path, ["parts.py"], Options()).changes[0]
    assert b"get_model_state_dict(" in change.after
