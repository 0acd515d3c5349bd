import copy

from torch.distributed.fsdp import fully_shard


def build(model):
    ema = copy.deepcopy(model)
    fully_shard(model)
    # TODO(fsdp-migrate FM510): copy the model before it is sharded, and shard the copy
    #   as well
    later = copy.deepcopy(model)
    return ema, model, later
