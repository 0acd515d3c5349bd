from torch.distributed.fsdp import fully_shard


def sample(model, tokens):
    fully_shard(model)
    # greedy decoding
    return model.generate(tokens, max_length=16)
