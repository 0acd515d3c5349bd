import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from encoder import Encoder, Features
from model import Block, batch, loss_of


def main(out):
    model = Encoder()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "read_out")
    register_fsdp_forward_method(model, "encode")
    features = Features(model)
    loss_of(model, batch(1)).backward()
    encoded = model.encode(batch(0))
    tokens = model.generate(batch(0))
    from_class = features.of(batch(0))
    return {
        "name": model.name(),
        "encoded": encoded,
        "tokens": tokens,
        "features": from_class,
        "model": model,
    }
