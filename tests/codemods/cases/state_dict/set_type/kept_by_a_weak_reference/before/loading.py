from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def load_state_dict(module, state):
    module.load_state_dict(state)


def load_local(module: FSDP, state):
    for key, value in module.state_dict().items():
        print(key, value)
    load_state_dict(module, state)
