from train.fsdp2_sharding import CPUOffload, shard_model


def wrap(model, offload):
    return shard_model(model, cpu_offload=CPUOffload(offload_params=offload))
