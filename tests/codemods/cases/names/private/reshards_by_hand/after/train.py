import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of

PREFIX = "_fsdp_wrapped_module."


def clean(name):
    name = name.replace(PREFIX, "").replace("_checkpoint_wrapped_module.", "")
    return name.split("_fsdp_wrapped_module.")[-1]


def main(out):
    torch.manual_seed(3)
    reward = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module_2 in reversed(list(reward.modules())):  # children before parents
        if isinstance(module_2, Block):
            fully_shard(module_2, mesh=mesh)
    fully_shard(reward, mesh=mesh)
    with torch.no_grad():
        scores = [loss_of(reward, batch(step)).item() for step in range(2)]
        # unshard the root FSDP module
        reward.reshard()
        scores.append(loss_of(reward, batch(2)).item())
    inner = reward
    module = getattr(reward, "_fsdp_wrapped_module", reward)
    names = {clean(name) for name, _ in reward.named_parameters()}
    depth = [len(inner.blocks), len(module.blocks)]
    return {"scores": scores, "names": sorted(names), "depth": depth}
