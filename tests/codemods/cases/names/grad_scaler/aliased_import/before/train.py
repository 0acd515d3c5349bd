import torch.distributed.fsdp.sharded_grad_scaler as scalers


def scaler():
    return scalers.ShardedGradScaler()
