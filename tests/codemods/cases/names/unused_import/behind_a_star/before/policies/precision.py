from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy
