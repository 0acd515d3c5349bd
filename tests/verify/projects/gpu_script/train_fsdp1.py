"""Written for GPUs throughout: device indices, events, autocast, a gradient scaler, memory statistics."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="nccl")
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    device = torch.device(f"cuda:{local_rank}")
    with torch.device(device):
        model = nn.Sequential(nn.Linear(64, 64), nn.SyncBatchNorm(64), nn.Linear(64, 8))
    model = FSDP(model.to(local_rank), device_id=local_rank, cpu_offload=CPUOffload(offload_params=False))
    scaler = ShardedGradScaler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    generator = torch.Generator().manual_seed(local_rank)
    for step in range(8):
        x = torch.randn(16, 64, generator=generator).to(device, non_blocking=True)
        y = torch.randint(0, 8, (16,), generator=generator).cuda(local_rank)
        start.record()
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        seen = torch.zeros(1, device="cuda") + loss.detach()
        print(step, seen.item(), start.elapsed_time(end), torch.cuda.max_memory_allocated())
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
