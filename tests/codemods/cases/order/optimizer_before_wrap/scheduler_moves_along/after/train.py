import torch
from torch.distributed.fsdp import fully_shard


def build(model, lr):
    print("built")
    fully_shard(model)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        params,
        lr=lr,  # tuned
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    return model, optimizer, scheduler
