from fsdp2_sharding import OptimStateKeyType, rekey_optim_state_dict


def by_number(state, model):
    return rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, model)
