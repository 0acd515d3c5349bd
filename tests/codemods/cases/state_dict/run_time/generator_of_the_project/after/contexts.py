"""Which kind of state dict, by a word of the configuration."""

from contextlib import contextmanager

from fsdp2_sharding import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
    optim_state_dict,
    optim_state_dict_to_load,
    state_dict_type,
)


@contextmanager
def state_dicts(module, kind="full"):
    model_config = optim_config = None
    if kind == "full":
        state_type = StateDictType.FULL_STATE_DICT
        model_config = FullStateDictConfig(rank0_only=True)
        optim_config = FullOptimStateDictConfig(
            offload_to_cpu=False, rank0_only=True
        )
    elif kind == "sharded":
        from fsdp2_sharding import ShardedOptimStateDictConfig, ShardedStateDictConfig

        # Shards stay on the device they are on.
        state_type = StateDictType.SHARDED_STATE_DICT
        model_config = ShardedStateDictConfig()
        optim_config = ShardedOptimStateDictConfig(offload_to_cpu=False)
    else:
        raise NotImplementedError(kind)
    with state_dict_type(
        module,
        state_dict_type=state_type,
        state_dict_config=model_config,
        optim_state_dict_config=optim_config,
    ):
        yield


def optimizer_state(model, optim, kind):
    with state_dicts(module=model, kind=kind):
        return optim_state_dict(model, optim)


def optimizer_state_to_load(state, model, optim, kind):
    """What `optim.load_state_dict` takes."""
    with state_dicts(model, kind):
        loadable = optim_state_dict_to_load(model, optim, state)
    return loadable
