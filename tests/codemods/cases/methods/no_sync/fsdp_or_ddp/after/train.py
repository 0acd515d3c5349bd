from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from fsdp2_sharding import no_sync_of_either


def wrap(model, sharded):
    if sharded:
        return fully_shard(model)
    return DistributedDataParallel(model)


def run(model, batches, sharded):
    model = wrap(model, sharded)
    for batch in batches[:-1]:
        with no_sync_of_either(model):
            model(batch).mean().backward()
    model(batches[-1]).mean().backward()
