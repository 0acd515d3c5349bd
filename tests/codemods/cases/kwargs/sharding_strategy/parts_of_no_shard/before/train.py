import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x)


class Net(nn.Module):
    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer
        self.embed = nn.Embedding(10, 8)
        self.encoder = Block()
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)))


def whole(tokens):
    model = FSDP(Net(len), sharding_strategy=ShardingStrategy.NO_SHARD)
    hidden = model.embed(tokens)
    return model.module.head(model.encoder(hidden)), model.tokenizer(tokens), model(tokens)


def with_units(tokens):
    model = FSDP(
        Net(len),
        sharding_strategy=ShardingStrategy.NO_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.cuda.current_device(),
    )
    return model.head(model.encoder(torch.ones(1, 8)))


def sharded(tokens):
    model = FSDP(Net(len))
    return model.head(torch.ones(1, 8))
