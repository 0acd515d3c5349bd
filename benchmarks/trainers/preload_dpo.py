"""A small GPT-2 in the place of a download, this process in the place of one the trainer spawns."""

import os
import random

import small_models
import torch.multiprocessing
import transformers

transformers.AutoModelForCausalLM.from_pretrained = small_models.gpt2
transformers.AutoTokenizer.from_pretrained = small_models.tokenizer


def call_here(function, nprocs, args, join):
    """One of `nprocs` processes: this one."""
    assert nprocs == int(os.environ["WORLD_SIZE"]) and join
    # The trainer sets its own port; every rank has to agree on it.
    args[1].fsdp_port = int(os.environ["MASTER_PORT"])
    function(int(os.environ["RANK"]), *args)


torch.multiprocessing.spawn = call_here

seed = random.seed
random.seed = lambda number: seed(int(number))  # Python 3.11 and later refuse NumPy's integers
