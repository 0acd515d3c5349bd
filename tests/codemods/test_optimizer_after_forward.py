"""FM519: an optimizer built after the model has run; another model under the same name is no such case."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import rewrite_of


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("", True),
        ("model = torch.compile(model)", True),
        ("if retry:\n        model = FSDP(build())", True),
        ("model = FSDP(build())", False),
        ("other = FSDP(build())", True),
    ],
)
def test_only_a_model_that_has_run_is_resharded(tmp_path: Path, between: str, found: bool) -> None:
    source = (
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def train(build, batch, retry):\n    model = FSDP(build())\n    model(batch)\n"
        f"    {between}\n    optimizer = torch.optim.AdamW(model.parameters())\n    return optimizer\n"
    )
    done, texts = rewrite_of(tmp_path, {"train.py": source})
    assert ("FM519" in {r.finding.code for r in done.reported}) is found
    assert ("module.reshard()" in texts["train.py"]) is found
