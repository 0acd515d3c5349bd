torchrun train.py --fsdp --fsdp_config configs/missing.json
