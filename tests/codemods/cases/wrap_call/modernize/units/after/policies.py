import functools

from fsdp2_sharding import (
    lambda_auto_wrap_policy,
    or_policy,
    transformer_auto_wrap_policy,
)


def is_trained(module):
    return getattr(module, "weight", None) is not None and module.weight.requires_grad


def fine_tuning_policy(layer):
    def is_large(module):
        return sum(p.numel() for p in module.parameters()) > 1_000_000

    large = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_large)
    layers = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={layer}
    )
    return functools.partial(or_policy, policies=[layers, large])


def only_trained():
    trained = functools.partial(
        lambda_auto_wrap_policy, lambda_fn=lambda m: m.weight.requires_grad
    )
    return functools.partial(or_policy, policies=[trained])
