import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from model import build, loader


def main(path):
    plugin = FullyShardedDataParallelPlugin(sharding_strategy="FULL_SHARD")
    accelerator = Accelerator(fsdp_plugin=plugin)
    model, teacher = build(), build()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
    for batch in batches:
        accelerator.backward(model(batch))
        norm = model.clip_grad_norm_(1.0)
        accelerator.print(norm, sum(p.grad.norm() ** 2 for p in model.parameters()))
        optimizer.step()
    torch.save(accelerator.unwrap_model(model).state_dict(), path)
    torch.save(accelerator.get_state_dict(model), path)
    torch.save(batches.state_dict(), path)
    torch.save(teacher.state_dict(), path)
    return model.module.config
