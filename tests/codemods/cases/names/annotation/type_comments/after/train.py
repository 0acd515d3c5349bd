from torch.distributed.fsdp import fully_shard


# TODO(fsdp-migrate FM502): write `FSDPModule` and import it, best as an annotation
def wrap(model, rank):
    # type: (Module, int) -> FSDP
    # TODO(fsdp-migrate FM502): write `FSDPModule` and import it, best as an annotation
    wrapped = None  # type: Optional[FSDP]
    wrapped = fully_shard(model)
    count = 0  # type: int
    return wrapped
