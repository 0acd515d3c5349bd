from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


def wrap(model, offload):
    return FSDP(model, cpu_offload=CPUOffload(offload_params=offload), use_orig_params=True)
