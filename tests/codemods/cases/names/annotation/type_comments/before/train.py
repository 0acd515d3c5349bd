from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model, rank):
    # type: (Module, int) -> FSDP
    wrapped = None  # type: Optional[FSDP]
    wrapped = FSDP(model)
    count = 0  # type: int
    return wrapped
