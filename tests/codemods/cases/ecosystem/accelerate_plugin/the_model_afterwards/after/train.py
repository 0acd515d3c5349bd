import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from model import build, loader
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)


def main(path):
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="FULL_STATE_DICT", reshard_after_forward=True
    )
    accelerator = Accelerator(fsdp_plugin=plugin)
    model, teacher = build(), build()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
    for batch in batches:
        accelerator.backward(model(batch))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        accelerator.print(norm, sum(p.grad.norm() ** 2 for p in model.parameters()))
        optimizer.step()
    torch.save(
        get_model_state_dict(
            accelerator.unwrap_model(model),
            options=StateDictOptions(full_state_dict=True),
        ),
        path,
    )
    torch.save(accelerator.get_state_dict(model), path)
    torch.save(batches.state_dict(), path)
    torch.save(teacher.state_dict(), path)
    return model.config
