from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(parts):
    # TODO(fsdp-migrate FM103): build the modules first, then shard each and the model
    #   around them with fully_shard
    return [FSDP(part) for part in parts]
