from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(group):
    return ShardedGradScaler("cuda", 1024.0, 0.5, 2.0, process_group=group)


def old_scaler():
    return ShardedGradScaler(2.0**10, 0.5)


def passed_on(make=ShardedGradScaler):
    return make(enabled=True)
