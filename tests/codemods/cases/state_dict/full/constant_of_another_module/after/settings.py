from torch.distributed.checkpoint.state_dict import StateDictOptions

full_on_cpu = StateDictOptions(full_state_dict=True, cpu_offload=True)
