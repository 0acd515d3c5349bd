"""FM112 speaks of buffers that are saved in another dtype, and of no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import rewrite_of

_PROGRAM = """
    import torch
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import MixedPrecision


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            BUFFERS


    def shard():
        return FSDP(Net(), mixed_precision=MixedPrecision(PRECISION))
"""
_CAST = "buffer_dtype=torch.bfloat16"
_SAVED = 'self.register_buffer("mask", torch.ones(2))'
_NOT_SAVED = 'self.register_buffer("mask", torch.ones(2), persistent=False)'


@pytest.mark.parametrize(
    ("buffers", "precision", "told"),
    [
        (_SAVED, _CAST, True),
        (_SAVED.replace("))", "), True)"), _CAST, True),
        (_SAVED.replace("))", "), persistent=self.keeps)"), _CAST, True),
        (f"{_NOT_SAVED}; {_SAVED}", _CAST, True),
        (_NOT_SAVED, _CAST, False),
        (_SAVED.replace("))", "), False)"), _CAST, False),
        ("pass", _CAST, False),
        (_SAVED, "param_dtype=torch.bfloat16", False),
        (_SAVED, "buffer_dtype=None", False),
    ],
)
def test_buffers_that_are_saved_in_another_dtype_are_told(
    tmp_path: Path, buffers: str, precision: str, told: bool
) -> None:
    program = _PROGRAM.replace("BUFFERS", buffers).replace("PRECISION", precision)
    done, texts = rewrite_of(tmp_path, {"train.py": program})
    assert ("FM112" in [item.finding.code for item in done.reported]) is told
    assert "fully_shard" in texts["train.py"]
