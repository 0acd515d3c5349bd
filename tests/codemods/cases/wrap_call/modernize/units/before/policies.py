import functools

from torch.distributed.fsdp.wrap import (
    _or_policy,
    lambda_auto_wrap_policy,
    transformer_auto_wrap_policy,
)


def is_trained(module):
    return getattr(module, "weight", None) is not None and module.weight.requires_grad


def fine_tuning_policy(layer):
    def is_trained_leaf(module):
        return not list(module.named_children()) and module.weight.requires_grad

    def is_large(module):
        return sum(p.numel() for p in module.parameters()) > 1_000_000

    leaves = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_trained_leaf)
    trained = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_trained)
    large = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_large)
    layers = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={layer}
    )
    return functools.partial(_or_policy, policies=[leaves, trained, layers, large])


def only_trained():
    trained = functools.partial(
        lambda_auto_wrap_policy, lambda_fn=lambda m: m.weight.requires_grad
    )
    return functools.partial(_or_policy, policies=[trained])
