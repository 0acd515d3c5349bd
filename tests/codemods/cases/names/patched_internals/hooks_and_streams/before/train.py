from unittest import mock

import torch.distributed.fsdp._runtime_utils as runtime
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def hook(state, handle, *unused):
    return handle


def clip(self, norm):
    return norm


runtime._post_backward_hook = hook
FSDP.clip_grad_norm_ = clip
setattr(FSDP, "no_sync", clip)


def main(model, teacher):
    model, teacher = FSDP(model), FSDP(teacher)
    teacher._streams = model._streams
    teacher._unshard_stream = getattr(model, "_unshard_stream")
    with mock.patch("torch.distributed.fsdp._runtime_utils._reduce_grad", hook):
        model().backward()
