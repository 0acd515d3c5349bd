from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_sharding import shard_model


def wrap(model, sharded):
    return shard_model(model) if sharded else DDP(model)


def describe(model, sharded, step):
    model = wrap(model, sharded)
    print(
        f"the model ({type(getattr(model, 'module', model)).__name__}) at step {step}"
    )
    print(
        f'the model ({type(getattr(model, "module", model)).__name__}) at step {step}'
    )
    print(f"""the model ({type(getattr(model, "module", model)).__name__})
    at step {step}""")
    raise RuntimeError(
        "at the end: "
        f"the model ({type(getattr(model, 'module', model)).__name__}) "
        f'of {getattr(model, "module", model).config} '
        "is not ready"
    )
