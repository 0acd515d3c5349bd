from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(model, sharded):
    return FSDP(model) if sharded else DDP(model)


def describe(model, sharded, step):
    model = wrap(model, sharded)
    print(f"the model ({type(model.module).__name__}) at step {step}")
    print(f'the model ({type(model.module).__name__}) at step {step}')
    print(f"""the model ({type(model.module).__name__})
    at step {step}""")
    raise RuntimeError(
        "at the end: "
        f"the model ({type(model.module).__name__}) "
        f'of {model.module.config} '
        "is not ready"
    )
