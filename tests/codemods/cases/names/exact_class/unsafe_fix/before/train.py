from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def count(model, block):
    model = FSDP(model)
    return [m for m in model.modules() if type(m) is not block]
