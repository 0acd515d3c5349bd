from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)


def whole(model):
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
