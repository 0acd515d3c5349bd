from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from trainer.parts.wrap import policy


def main(model, cfg):
    model = FSDP(model, auto_wrap_policy=policy(cfg), use_orig_params=True)
    return model


if __name__ == "__main__":
    main(None, None)
