import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of

PREFIX = "_fsdp_wrapped_module."


def clean(name):
    name = name.replace(PREFIX, "").replace("_checkpoint_wrapped_module.", "")
    return name.split("_fsdp_wrapped_module.")[-1]


def main(out):
    torch.manual_seed(3)
    reward = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    with torch.no_grad():
        scores = [loss_of(reward, batch(step)).item() for step in range(2)]
        # unshard the root FSDP module
        reward._handle.reshard(True)
        scores.append(loss_of(reward, batch(2)).item())
    inner = reward._fsdp_wrapped_module
    module = getattr(reward, "_fsdp_wrapped_module", reward)
    names = {clean(name) for name, _ in reward.named_parameters()}
    depth = [len(inner.blocks), len(module.blocks)]
    return {"scores": scores, "names": sorted(names), "depth": depth}
