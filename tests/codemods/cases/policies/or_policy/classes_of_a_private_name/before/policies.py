from functools import partial

from torch.distributed.fsdp.wrap import _module_wrap_policy


def of_embeddings(kind):
    return partial(_module_wrap_policy, module_classes=(kind,))
