from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from weights import layers_of


def test_layers():
    model = FSDP(nn.Sequential(nn.Linear(4, 4)))
    assert layers_of(model) == []
