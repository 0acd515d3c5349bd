# wrapper._target_=torch.distributed.fsdp.FullyShardedDataParallel was the default
# TODO(fsdp-migrate FM641): name a function of your own that calls `fully_shard` on the units and
#   the model and gives the model back, with settings of `fully_shard`
python train.py wrapper._target_=torch.distributed.fsdp.FullyShardedDataParallel \
    wrapper.cpu_offload._target_=torch.distributed.fsdp.CPUOffload
