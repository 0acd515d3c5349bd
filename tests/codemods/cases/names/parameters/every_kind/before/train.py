import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def report(model):
    before = sum(p.numel() for p in model.parameters())
    model = FSDP(model)
    local = sum(p.numel() for p in model.parameters())
    total = sum(p.numel() for p in model.parameters()) * dist.get_world_size()
    norm = 0.0
    for p in model.parameters():
        norm += p.grad.norm().item() ** 2
    decay = [p for name, p in model.named_parameters() if p.ndim >= 2]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return before, local, total, norm, decay, frozen
