from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def save_later(model):
    # TODO(fsdp-migrate FM401): save with
    #   `get_model_state_dict`/`get_optimizer_state_dict` and load with
    #   `set_model_state_dict`/`set_optimizer_state_dict` of
    #   `torch.distributed.checkpoint.state_dict`, then remove the context
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):

        def whole():
            return model.state_dict()

        first = whole()
    return first, whole
