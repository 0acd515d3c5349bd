from unittest import mock

import torch.distributed.fsdp._runtime_utils as runtime
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from fsdp2_sharding import shard_model


def hook(state, handle, *unused):
    return handle


def clip(self, norm):
    return norm


# TODO(fsdp-migrate FM524): remove it: FSDP2 does not run that code; what it was for may
#   be a method of `FSDPModule` (`set_all_reduce_hook`, `set_custom_reduce_scatter`,
#   `set_reshard_after_forward`)
runtime._post_backward_hook = hook
# TODO(fsdp-migrate FM524): remove it: FSDP2 does not run that code; what it was for may
#   be a method of `FSDPModule` (`set_all_reduce_hook`, `set_custom_reduce_scatter`,
#   `set_reshard_after_forward`)
FSDP.clip_grad_norm_ = clip
# TODO(fsdp-migrate FM524): remove it: FSDP2 does not run that code; what it was for may
#   be a method of `FSDPModule` (`set_all_reduce_hook`, `set_custom_reduce_scatter`,
#   `set_reshard_after_forward`)
setattr(FSDP, "no_sync", clip)


def main(model, teacher):
    model, teacher = shard_model(model), shard_model(teacher)
    # TODO(fsdp-migrate FM310): FSDP2 models share streams by `share_comm_ctx([model,
    #   other])` (torch 2.10 and later)
    teacher._streams = model._streams
    # TODO(fsdp-migrate FM310): FSDP2 models share streams by `share_comm_ctx([model,
    #   other])` (torch 2.10 and later)
    teacher._unshard_stream = getattr(model, "_unshard_stream")
    # TODO(fsdp-migrate FM524): remove it: FSDP2 does not run that code; what it was for
    #   may be a method of `FSDPModule` (`set_all_reduce_hook`,
    #   `set_custom_reduce_scatter`, `set_reshard_after_forward`)
    with mock.patch("torch.distributed.fsdp._runtime_utils._reduce_grad", hook):
        model().backward()
