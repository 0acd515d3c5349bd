from fsdp2_sharding import get_state_dict_type


def kind(model):
    return get_state_dict_type(model).state_dict_type
