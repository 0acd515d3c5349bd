torchrun train.py --fsdp "full_shard auto_wrap" --fsdp_config configs/missing.json
