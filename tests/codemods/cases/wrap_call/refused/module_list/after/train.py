from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from fsdp2_sharding import shard_model


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.stem = nn.Sequential(nn.Linear(width, width))


def main(device_id):
    model = Net(16)
    # TODO(fsdp-migrate FM103): shard the modules in it one by one, `for part in parts:
    #   fully_shard(part)`, or as one unit, `fully_shard(list(parts))`
    model.blocks = FSDP(model.blocks, device_id=device_id)
    model.stem = shard_model(model.stem, device_id=device_id)
    # TODO(fsdp-migrate FM103): shard the modules in it one by one, `for part in parts:
    #   fully_shard(part)`, or as one unit, `fully_shard(list(parts))`
    parts = FSDP(nn.ModuleDict({"a": nn.Linear(2, 2)}), device_id=device_id)
    return shard_model(model, device_id=device_id), parts
