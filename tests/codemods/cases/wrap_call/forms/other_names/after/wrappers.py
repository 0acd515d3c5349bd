from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel

# TODO(fsdp-migrate FM516): shard with `fully_shard` in place; a sharded module is an
#   `FSDPModule`
FSDP = FullyShardedDataParallel
# TODO(fsdp-migrate FM516): shard with `fully_shard` in place; a sharded module is an
#   `FSDPModule`
Wrapper = FSDP
