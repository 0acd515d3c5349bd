import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.utils import clip_grad_norm_


def train(model, probe, batches, lr):
    model = FSDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    probing = torch.optim.AdamW(probe.parameters(), lr=lr)
    for batch in batches:
        probe(model(batch)).mean().backward()
        norms = [clip_grad_norm_(group["params"], 1.0) for group in optimizer.param_groups]
        clip_grad_norm_(probing.param_groups[0]["params"], 1.0)
        print(sum(norm.item() for norm in norms))
        for opt in (optimizer, probing):
            opt.step()
            opt.zero_grad()
