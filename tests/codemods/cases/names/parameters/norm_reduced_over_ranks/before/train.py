import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import norms
from model import Block, Model, batch, loss_of


def refused(model, log):
    return [
        norms.of_one_rank(model),
        norms.largest(model),
        norms.averaged(model),
        norms.used_before(model, log),
    ]


def main(out, strategy, use_orig_params, log=None):
    model = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy[strategy],
        device_id=torch.device("cpu"),
        use_orig_params=use_orig_params,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        found += [norms.in_a_loop(model), norms.of_numbers(model)]
        found += [norms.in_an_expression(model), norms.of_two_kinds(model)]
        found += [norms.of_a_kind(model), norms.of_a_kind(model, 3.0)]
        optimizer.step()
    if log is not None:
        found += refused(model, log)
    return {"norms": found, "model": model}
