import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from checkpoints import export, load, save
from model import Model, batch, loss_of
from parallel import no_sync, reshard, shard


def clip(model, max_norm):
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def main(steps, accumulate):
    with torch.device("meta"):
        model = Model()
    model = shard(model, replicas=2, offload=False, remat=True)
    assert isinstance(model, FSDPModule)
    model.to_empty(device="cuda")
    load(model, None, "start")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    averages = {n: p.detach().clone() for n, p in model.named_parameters()}
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    for step in range(steps):
        no_sync(model, (step + 1) % accumulate == 0)
        scaler.scale(loss_of(model, batch(step))).backward()
        if (step + 1) % accumulate:
            continue
        scaler.unscale_(optimizer)
        print(f"norm {clip(model, 1.0):.3f}")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        reshard(model)
        for name, parameter in model.named_parameters():
            averages[name].lerp_(parameter, 0.01)
    save(model, optimizer, "end")
    export(model, "model.pt")
    return model.generate(batch(0))
