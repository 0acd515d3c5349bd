"""One rank that runs every executable case's FSDP1 and FSDP2 scripts in turn and compares what they did.

Started by `parity.py` with `RANK` and `WORLD_SIZE`; all jobs share one process group, since a process start
with torch costs seconds and a job a fraction of one. Each job ends in one JSON line of this rank's result
file. After a job that raised, this rank cannot know what its peers wait for: it leaves, and the parent starts
afresh with the next job.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.format_utils as dcp_format
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import DTensor

# gloo waits this long for a peer that has left after an error.
TIMEOUT = timedelta(seconds=40)
# FSDP1 shows whole gradients only with `use_orig_params=True`.
NOT_READABLE = "not readable"
WRAPPER_PREFIXES = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


def patch_torch_for_cpu() -> None:
    """FSDP1 refuses `sync_module_states=True` on CPU (torch 2.13); the broadcast itself works. CPU offload
    of either FSDP pins memory and waits for a stream, which needs a GPU and changes no value. A full state
    dict of `offload_to_cpu=True` moves parameters that are on the CPU already, and frees them."""
    from torch.distributed.fsdp import _flat_param, _init_utils

    _init_utils._check_module_states_for_sync_module_states = lambda *_, **__: None
    torch.Tensor.pin_memory = lambda self, *_, **__: self
    torch.cpu.Stream.synchronize = lambda _: None
    _flat_param.FlatParamHandle.to_cpu = lambda _: contextlib.nullcontext()


def run_arm(folder: Path, configuration: dict[str, Any], out: Path) -> dict[str, Any]:
    """What `main` of `folder/train.py` returned, as plain full tensors and Python values."""
    out.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    sys.path.insert(0, str(folder))
    known = set(sys.modules)
    try:
        importlib.invalidate_caches()
        torch.manual_seed(0)
        returned = importlib.import_module("train").main(out, **configuration)
        return {name: plain(value) for name, value in returned.items()}
    finally:
        sys.path.remove(str(folder))
        for name in sys.modules.keys() - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def plain(value: Any) -> Any:
    if isinstance(value, nn.Module):
        return whole_model(value)
    if isinstance(value, DTensor):
        return value.detach().full_tensor().clone()
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def whole_model(model: nn.Module) -> dict[str, Any]:
    """Full weights, gradients and buffers by name without wrapper prefixes, from either kind of sharding."""
    fsdp1 = FSDP.fsdp_modules(model)
    if not fsdp1:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                # After a forward pass the root shows whole, temporary parameters that have no gradient.
                module.reshard()
        return tensors_of(model, with_gradients=True)
    with_gradients = all(unit._use_orig_params for unit in fsdp1)
    with FSDP.summon_full_params(model, writeback=False, with_grads=with_gradients):
        return tensors_of(model, with_gradients)


def tensors_of(model: nn.Module, with_gradients: bool) -> dict[str, Any]:
    parameters = {clean(name): parameter for name, parameter in model.named_parameters()}
    return {
        "weights": {name: plain(parameter) for name, parameter in parameters.items()},
        "gradients": {name: plain(p.grad) for name, p in parameters.items()}
        if with_gradients
        else NOT_READABLE,
        "buffers": {clean(name): plain(buffer) for name, buffer in model.named_buffers()},
    }


def clean(name: str) -> str:
    for prefix in WRAPPER_PREFIXES:
        name = name.replace(prefix, "")
    return name


def saved_files(out: Path) -> dict[str, Any]:
    """Every file a script saved, read back: torch.save files as they are, DCP folders as one state dict."""
    found: dict[str, Any] = {}
    dcp_folders = {path.parent for path in out.rglob(".metadata")}
    for folder in sorted(dcp_folders):
        merged = folder.parent / f"{folder.name}.merged"
        dcp_format.dcp_to_torch_save(folder, merged)
        found[folder.relative_to(out).as_posix()] = plain(torch.load(merged, weights_only=False))
        merged.unlink()
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.parent not in dcp_folders:
            if path.suffix in {".pt", ".pth", ".bin"}:
                content = torch.load(path, weights_only=False)
                found[path.relative_to(out).as_posix()] = _as_saved(content)
            else:
                found[path.relative_to(out).as_posix()] = path.read_text(encoding="utf-8")
    return found


def _as_saved(value: Any) -> Any:
    """A saved object without gathering: a DTensor in a file is one rank's shard, and no tensor."""
    if isinstance(value, DTensor):
        return {"DTensor": value.to_local().clone()}
    if isinstance(value, dict):
        return {key: _as_saved(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_saved(item) for item in value]
    return value


def differences(before: Any, after: Any, rtol: float, at: str = "") -> list[str]:
    """Where two outcomes differ, in words; empty when they agree (`rtol` 0: bit for bit)."""
    if isinstance(before, dict) and isinstance(after, dict):
        missing = [f"{at}/{key}: only before" for key in before if key not in after]
        extra = [f"{at}/{key}: only after" for key in after if key not in before]
        both = [key for key in before if key in after]
        return (
            missing + extra + [d for k in both for d in differences(before[k], after[k], rtol, f"{at}/{k}")]
        )
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if len(before) != len(after):
            return [f"{at}: {len(before)} entries before, {len(after)} after"]
        if all(isinstance(item, str) for item in (*before, *after)):
            # Names of a parameter group: FSDP1 lists a flat parameter's together, the state goes by name.
            before, after = sorted(before), sorted(after)
        pairs = enumerate(zip(before, after, strict=True))
        return [d for i, (b, a) in pairs for d in differences(b, a, rtol, f"{at}[{i}]")]
    if before == NOT_READABLE:
        return []
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        return _tensor_difference(before, after, rtol, at)
    if isinstance(before, float) and isinstance(after, float):
        same = (
            before == after
            or abs(before - after) <= rtol * abs(before)
            or (before != before and after != after)
        )
        return [] if same else [f"{at}: {before!r} before, {after!r} after"]
    if type(before) is type(after) and before == after:
        return []
    return [f"{at}: {_short(before)} before, {_short(after)} after"]


def _tensor_difference(before: torch.Tensor, after: torch.Tensor, rtol: float, at: str) -> list[str]:
    if before.shape != after.shape or before.dtype != after.dtype:
        return [
            f"{at}: {tuple(before.shape)} {before.dtype} before, {tuple(after.shape)} {after.dtype} after"
        ]
    if torch.equal(before, after) or (
        before.is_floating_point()
        and torch.allclose(before, after, rtol=rtol, atol=rtol / 10, equal_nan=True)
    ):
        return []
    gap = (before.double() - after.double()).abs().max().item()
    return [f"{at}: differs by up to {gap:.3e}"]


def _short(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) < 120 else text[:117] + "..."


def run_job(job: dict[str, Any], rank: int) -> dict[str, Any]:
    scratch = Path(job["scratch"])
    outcomes = {
        arm: run_arm(Path(job[arm]), job["configuration"], scratch / arm) for arm in ("before", "after")
    }
    dist.barrier()
    if rank == 0:
        for arm, outcome in outcomes.items():
            outcome["files"] = saved_files(scratch / arm)
    dist.barrier()
    compared = list(outcomes["before"])
    return {
        "job": job["id"],
        "compared": compared,
        "files": sorted(outcomes["before"].get("files", {})),
        "differences": differences(outcomes["before"], outcomes["after"], job["rtol"]),
    }


def main(jobs_file: Path, folder: Path) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    results_file = folder / f"rank{rank}.jsonl"
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    patch_torch_for_cpu()
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    code = 0
    with results_file.open("a", encoding="utf-8") as results:
        for job in json.loads(jobs_file.read_text(encoding="utf-8")):
            try:
                result = run_job(job, rank)
            except BaseException:
                result = {"job": job["id"], "error": traceback.format_exc()}
                code = 1
            results.write(json.dumps(result) + "\n")
            results.flush()
            if code:
                break
    sys.stdout.flush()
    # gloo's threads abort the interpreter in one exit of ten (torch 2.13, CPU); everything is written by now.
    os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
