project = "trainer"
nitpick_ignore = [
    ("py:class", "torch.distributed.fsdp.ShardingStrategy"),
    ("py:class", "torch.distributed.fsdp.wrap.ModuleWrapPolicy"),
]
