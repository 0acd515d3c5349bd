from model import Block
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def written_out(model):
    return FSDP(
        model,  # in place
        auto_wrap_policy=ModuleWrapPolicy({Block}),  # one unit per block
        limit_all_gathers=True,  # rate limiter
        use_orig_params=True,  # noqa: E501
        # nothing else
    )


def decided_later(model, strategy):
    return FSDP(
        model,
        sharding_strategy=strategy,  # from the command line
        limit_all_gathers=True,  # rate limiter
        use_orig_params=True,  # noqa: E501
    )
