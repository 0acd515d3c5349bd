from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(model, tokens):
    model = FSDP(model)
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        # greedy decoding
        return model.generate(tokens, max_length=16)
