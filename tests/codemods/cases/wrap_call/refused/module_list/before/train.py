from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.stem = nn.Sequential(nn.Linear(width, width))


def main(device_id):
    model = Net(16)
    model.blocks = FSDP(model.blocks, device_id=device_id)
    model.stem = FSDP(model.stem, device_id=device_id)
    parts = FSDP(nn.ModuleDict({"a": nn.Linear(2, 2)}), device_id=device_id)
    return FSDP(model, device_id=device_id), parts
