# wrapper._target_=torch.distributed.fsdp.FullyShardedDataParallel was the default
python train.py wrapper._target_=torch.distributed.fsdp.FullyShardedDataParallel \
    wrapper.cpu_offload._target_=torch.distributed.fsdp.CPUOffload
