"""One rank of Lightning programs, FSDP1's and FSDP2's, on CPU; each writes down the losses it saw.

Lightning lets `FSDPStrategy` run on GPUs only, and FSDP1 asks for a device: both are told that it is the CPU.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def let_fsdp1_run_on_cpu() -> None:
    from lightning.pytorch.trainer.connectors.accelerator_connector import _AcceleratorConnector

    _AcceleratorConnector._check_strategy_and_fallback = lambda _: None  # type: ignore[method-assign]
    made = FSDP.__init__

    def init(self: FSDP, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **{**kwargs, "device_id": torch.device("cpu")})

    FSDP.__init__ = init  # type: ignore[method-assign]


def run(script: Path) -> None:
    """Train, and write what was seen beside the script."""
    sys.path.insert(0, str(script.parent))
    try:
        made = runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.path.remove(str(script.parent))
        sys.modules.pop("model", None)
    said = {
        "losses": made["module"].losses,
        "kinds": sorted({type(m).__name__ for m in made["trainer"].strategy.model.modules()}),
    }
    (script.parent / f"rank{dist.get_rank()}.json").write_text(json.dumps(said))


def main(scripts: list[Path]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    let_fsdp1_run_on_cpu()
    for script in scripts:
        run(script)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads abort the interpreter in one exit of ten


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
