import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, rank):
    model = FSDP(model)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    torch.save(optimizer.state_dict(), f"optimizer.{rank}.pt")
    if rank == 0:
        torch.save(optimizer.state_dict(), "optimizer.pt")
        torch.save(scheduler.state_dict(), "scheduler.pt")
