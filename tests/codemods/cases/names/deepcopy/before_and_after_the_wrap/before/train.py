import copy

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model):
    ema = copy.deepcopy(model)
    model = FSDP(model)
    later = copy.deepcopy(model)
    return ema, model, later
