import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin


def main(model, teacher, loader, path):
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="FULL_STATE_DICT", reshard_after_forward=True
    )
    accelerator = Accelerator(fsdp_plugin=plugin)
    # TODO(fsdp-migrate FM624): build the optimizer from the model's parameters before,
    #   and give both to one `accelerator.prepare(...)`
    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters())
    # TODO(fsdp-migrate FM624): build the optimizer from the model's parameters before,
    #   and give both to one `accelerator.prepare(...)`
    optimizer, loader = accelerator.prepare(optimizer, loader)
    teacher = accelerator.prepare_model(teacher, evaluation_mode=True)
    for batch in loader:
        accelerator.backward((model(batch) - teacher(batch)).norm())
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        norms = [p.grad.norm() for group in optimizer.param_groups for p in group["params"]]
        accelerator.print(max(norms))
        optimizer.step()
    torch.save(optimizer.state_dict(), path)
