import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model, lr):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        params,
        lr=lr,  # tuned
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    print("built")
    model = FSDP(model, use_orig_params=True)
    return model, optimizer, scheduler
