import contextlib

from torch.distributed.fsdp import fully_shard


def sample(model, batch, sharded):
    fully_shard(model)
    ctx = lambda: contextlib.nullcontext()
    with ctx():
        return model.generate(batch)
