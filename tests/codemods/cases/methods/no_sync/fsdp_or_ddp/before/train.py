from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel


def wrap(model, sharded):
    if sharded:
        return FSDP(model)
    return DistributedDataParallel(model)


def run(model, batches, sharded):
    model = wrap(model, sharded)
    for batch in batches[:-1]:
        with model.no_sync():
            model(batch).mean().backward()
    model(batches[-1]).mean().backward()
