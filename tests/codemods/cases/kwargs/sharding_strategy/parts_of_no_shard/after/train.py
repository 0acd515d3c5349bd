import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import ModuleWrapPolicy, ShardingStrategy, shard_model


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
    model = shard_model(Net(len), sharding_strategy=ShardingStrategy.NO_SHARD)
    # TODO(fsdp-migrate FM313): shard this part by itself, before the model, or call it
    #   between `model.unshard()` and `model.reshard()`
    hidden = model.embed(tokens)
    # TODO(fsdp-migrate FM313): shard this part by itself, before the model, or call it
    #   between `model.unshard()` and `model.reshard()`
    return model.head(model.encoder(hidden)), model.tokenizer(tokens), model(tokens)


def with_units(tokens):
    model = shard_model(
        Net(len),
        sharding_strategy=ShardingStrategy.NO_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.cuda.current_device(),
    )
    # TODO(fsdp-migrate FM313): shard this part by itself, before the model, or call it
    #   between `model.unshard()` and `model.reshard()`
    return model.head(model.encoder(torch.ones(1, 8)))


def sharded(tokens):
    model = Net(len)
    fully_shard(model)
    return model.head(torch.ones(1, 8))
