from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def wrap(model, sharded):
    if sharded:
        return fully_shard(model)
    return DistributedDataParallel(model)


def run(model, batches, sharded):
    model = wrap(model, sharded)
    for batch in batches[:-1]:
        # TODO(fsdp-migrate FM303): where it is an FSDPModule use
        #   `set_requires_gradient_sync(...)`, else `no_sync()`
        with model.no_sync():
            model(batch).mean().backward()
    model(batches[-1]).mean().backward()
