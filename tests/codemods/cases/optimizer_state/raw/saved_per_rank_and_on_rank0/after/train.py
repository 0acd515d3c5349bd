import torch
from torch.distributed.fsdp import fully_shard


def train(model, rank):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    torch.save(optimizer.state_dict(), f"optimizer.{rank}.pt")
    if rank == 0:
        # TODO(fsdp-migrate FM409): use `get_optimizer_state_dict(model, optimizer,
        #   options=StateDictOptions(full_state_dict=True, cpu_offload=True))` on every
        #   rank
        torch.save(optimizer.state_dict(), "optimizer.pt")
        torch.save(scheduler.state_dict(), "scheduler.pt")
