"""The text of the helper module's functions for state dicts whose kind is decided at run time.

What the functions do is what FSDP1 did (torch 2.6 to 2.13: `FullyShardedDataParallel.set_state_dict_type`,
`.state_dict_type`, `.get_state_dict_type`, `.optim_state_dict`, `.optim_state_dict_to_load`,
`.rekey_optim_state_dict`), written anew on `torch.distributed.checkpoint.state_dict`.
"""

from __future__ import annotations

GET_STATE_DICT_TYPE = '''\
def get_state_dict_type(module: nn.Module) -> StateDictSettings:
    """What is in force; whole tensors on every rank where nothing was set."""
    return _settings.get(module) or StateDictSettings()
'''

SET_STATE_DICT_TYPE = '''\
def set_state_dict_type(
    module: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> StateDictSettings:
    """Choose what a model and its parts give; return what was in force before."""
    state_dict_type = StateDictType(state_dict_type)
    if state_dict_type is StateDictType.LOCAL_STATE_DICT:
        raise ValueError("LOCAL_STATE_DICT is of flat parameters: FSDP2 has none")
    before = get_state_dict_type(module)
    chosen = StateDictSettings(
        state_dict_type,
        state_dict_config or StateDictConfig(),
        optim_state_dict_config or OptimStateDictConfig(),
    )
    for part in module.modules():
        _settings[part] = chosen
    return before
'''

STATE_DICT_TYPE_CONTEXT = '''\
@contextlib.contextmanager
def state_dict_type(
    module: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> Iterator[None]:
    """Choose what a model and its parts give inside of the block."""
    before = set_state_dict_type(
        module, state_dict_type, state_dict_config, optim_state_dict_config
    )
    try:
        yield
    finally:
        for part in module.modules():
            _settings[part] = before
'''

MODEL_STATE_DICT = '''\
def model_state_dict(model: nn.Module) -> dict[str, Any]:
    """The model's state dict, of the kind in force; every rank has to call."""
    settings = get_state_dict_type(model)
    config = settings.state_dict_config
    if settings.state_dict_type is StateDictType.SHARDED_STATE_DICT:
        options = StateDictOptions(cpu_offload=config.offload_to_cpu)
        return get_model_state_dict(model, options=options)
    return full_tensors(
        get_model_state_dict(model),
        offload_to_cpu=config.offload_to_cpu,
        rank0_only=getattr(config, "rank0_only", False),
    )
'''

LOAD_MODEL_STATE_DICT = '''\
def load_model_state_dict(
    model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True
) -> Any:
    """Load a state dict of the kind in force; return missing and unexpected keys."""
    settings = get_state_dict_type(model)
    is_full = settings.state_dict_type is StateDictType.FULL_STATE_DICT
    options = StateDictOptions(full_state_dict=is_full, strict=strict)
    return set_model_state_dict(model, dict(state_dict), options=options)
'''

OPTIM_STATE_DICT = '''\
def optim_state_dict(model: nn.Module, optim: torch.optim.Optimizer) -> dict[str, Any]:
    """Optimizer state by name, of the kind in force; every rank has to call."""
    settings = get_state_dict_type(model)
    config = settings.optim_state_dict_config
    if settings.state_dict_type is StateDictType.SHARDED_STATE_DICT:
        options = StateDictOptions(cpu_offload=config.offload_to_cpu)
        return get_optimizer_state_dict(model, optim, options=options)
    return full_tensors(
        get_optimizer_state_dict(model, optim),
        offload_to_cpu=config.offload_to_cpu,
        rank0_only=getattr(config, "rank0_only", False),
    )
'''

OPTIM_STATE_DICT_TO_LOAD = '''\
def optim_state_dict_to_load(
    model: nn.Module,
    optim: torch.optim.Optimizer,
    optim_state_dict: dict[str, Any] | None,
) -> dict[str, Any]:
    """Optimizer state by parameter name as `optim.load_state_dict` takes it."""
    config = get_state_dict_type(model).optim_state_dict_config
    from_rank0 = getattr(config, "rank0_only", False)
    return numbered_optim_state(model, optim, optim_state_dict, from_rank0=from_rank0)
'''

NUMBERED_OPTIM_STATE = '''\
def numbered_optim_state(
    model: nn.Module,
    optim: torch.optim.Optimizer | None,
    state: dict[str, Any] | None,
    *,
    from_rank0: bool = False,
) -> dict[str, Any]:
    """Optimizer state by parameter name as `optim.load_state_dict` takes it.

    Whole tensors, given on every rank or (`from_rank0`) on rank 0 alone, become
    shards. Without an optimizer its groups are the saved ones.
    """
    if from_rank0:
        state = _outline_of_rank0(state)
    if state is None:
        raise ValueError("this rank has no optimizer state to load")
    names = parameter_names(model)
    groups = [
        [parameter for parameter, name in names.items() if name in group["params"]]
        for group in state["param_groups"]
    ]
    if optim is not None:
        groups = [group["params"] for group in optim.param_groups]
    moments: dict[int, Any] = {}
    param_groups: list[dict[str, Any]] = []
    count = 0
    for parameters in groups:
        numbers = list(range(count, count + len(parameters)))
        count += len(parameters)
        for number, parameter in zip(numbers, parameters):
            found = state["state"].get(names[parameter])
            if found is not None:
                moments[number] = {
                    key: _like_parameter(value, parameter, from_rank0)
                    for key, value in found.items()
                }
        own = {names[parameter] for parameter in parameters}
        saved = next(
            group
            for group in state["param_groups"]
            if own.intersection(group["params"]) or not (own or group["params"])
        )
        param_groups.append({**saved, "params": numbers})
    return {"state": moments, "param_groups": param_groups}


def _like_parameter(value: Any, parameter: nn.Parameter, from_rank0: bool) -> Any:
    """A value of a parameter's state, sharded as the parameter is."""
    if not isinstance(value, torch.Tensor):
        return value
    # A value of another shape is such as `step`, which parameters must not share.
    if isinstance(value, DTensor) or value.shape != parameter.shape:
        return value.clone()
    if value.is_meta:
        value = torch.empty_like(value, device=parameter.device)
    value = value.to(parameter.device, copy=True)
    if isinstance(parameter, DTensor):
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    if from_rank0:
        dist.broadcast(value, src=0)
    return value


def _outline_of_rank0(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """Rank 0's state; on other ranks its large tensors have shapes and no values."""
    outline: list[Any] = [None]
    if dist.get_rank() == 0 and state is not None:
        light = {
            name: {
                key: value.to("meta")
                if isinstance(value, torch.Tensor) and value.dim()
                else value
                for key, value in values.items()
            }
            for name, values in state["state"].items()
        }
        outline = [{**state, "state": light}]
    dist.broadcast_object_list(outline, src=0)
    return state if dist.get_rank() == 0 else outline[0]
'''

PARAMETER_NAMES = '''\
def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Parameter -> name, without what checkpointing and compiling add to it."""
    names = {}
    for name, parameter in model.named_parameters():
        for prefix in ("_checkpoint_wrapped_module.", "_orig_mod."):
            name = name.replace(prefix, "")
        names[parameter] = name
    return names
'''

REKEY_OPTIM_STATE_DICT = '''\
def rekey_optim_state_dict(
    optim_state_dict: dict[str, Any],
    optim_state_key_type: OptimStateKeyType,
    model: nn.Module,
    *,
    optim: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """Optimizer state by names of parameters or by their numbers.

    Numbers count the optimizer's parameters, or without one the model's.
    """
    parameters = list(model.parameters())
    if optim is not None:
        parameters = [p for group in optim.param_groups for p in group["params"]]
    key_type = OptimStateKeyType(optim_state_key_type)
    by_name = key_type is OptimStateKeyType.PARAM_NAME
    if all(isinstance(key, str) is by_name for key in optim_state_dict["state"]):
        return optim_state_dict
    names = parameter_names(model)
    keys: dict[Any, Any] = {}
    for number, parameter in enumerate(parameters):
        old, new = (number, names[parameter]) if by_name else (names[parameter], number)
        keys[old] = new
    state = {keys[key]: value for key, value in optim_state_dict["state"].items()}
    param_groups = [
        {**group, "params": sorted(keys[key] for key in group["params"])}
        for group in optim_state_dict["param_groups"]
    ]
    return {"state": state, "param_groups": param_groups}
'''

STATE_DICT_FUNCTIONS = {
    "get_state_dict_type": GET_STATE_DICT_TYPE,
    "set_state_dict_type": SET_STATE_DICT_TYPE,
    "state_dict_type": STATE_DICT_TYPE_CONTEXT,
    "model_state_dict": MODEL_STATE_DICT,
    "load_model_state_dict": LOAD_MODEL_STATE_DICT,
    "optim_state_dict": OPTIM_STATE_DICT,
    "optim_state_dict_to_load": OPTIM_STATE_DICT_TO_LOAD,
    "numbered_optim_state": NUMBERED_OPTIM_STATE,
    "parameter_names": PARAMETER_NAMES,
    "rekey_optim_state_dict": REKEY_OPTIM_STATE_DICT,
}
"""Name -> text, in the order of the module; they stand after what they use."""
