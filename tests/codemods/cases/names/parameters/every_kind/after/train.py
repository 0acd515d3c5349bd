import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def report(model):
    before = sum(p.numel() for p in model.parameters())
    fully_shard(model)
    local = sum(p.numel() for p in model.parameters())
    # TODO(fsdp-migrate FM515): drop the factor for the number of ranks, or the sum over
    #   them
    total = sum(p.numel() for p in model.parameters()) * dist.get_world_size()
    norm = 0.0
    for p in model.parameters():
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        norm += p.grad.norm().item() ** 2
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   matched by flattened shapes before
    decay = [p for name, p in model.named_parameters() if p.ndim >= 2]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return before, local, total, norm, decay, frozen
