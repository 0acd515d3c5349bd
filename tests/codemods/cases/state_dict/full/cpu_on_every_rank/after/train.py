from torch.distributed.checkpoint.state_dict import get_model_state_dict

from fsdp2_sharding import full_tensors


def whole(model):
    return full_tensors(get_model_state_dict(model), offload_to_cpu=True)
