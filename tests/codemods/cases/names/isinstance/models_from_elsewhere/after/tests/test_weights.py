from torch import nn
from torch.distributed.fsdp import fully_shard

from weights import layers_of


def test_layers():
    model = nn.Sequential(nn.Linear(4, 4))
    fully_shard(model)
    assert layers_of(model) == []
