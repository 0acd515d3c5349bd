from functools import partial

from fsdp2_sharding import module_wrap_policy


def of_embeddings(kind):
    return partial(module_wrap_policy, module_classes=(kind,))
