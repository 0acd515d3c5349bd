import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin


def main(model, teacher, loader, path):
    plugin = FullyShardedDataParallelPlugin(sharding_strategy="FULL_SHARD")
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer, loader = accelerator.prepare(optimizer, loader)
    teacher = accelerator.prepare_model(teacher, evaluation_mode=True)
    for batch in loader:
        accelerator.backward((model(batch) - teacher(batch)).norm())
        norms = [p.grad.norm() for group in optimizer.param_groups for p in group["params"]]
        accelerator.print(max(norms))
        optimizer.step()
    torch.save(optimizer.state_dict(), path)
