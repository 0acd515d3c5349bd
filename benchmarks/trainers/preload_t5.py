"""A small T5 in the place of a download, what newer packages no longer have, and a checkpoint at the end."""

import sys

import small_models
import torch
import transformers
from configs import fsdp_config, train_config

transformers.T5ForConditionalGeneration.from_pretrained = small_models.t5
transformers.T5Tokenizer.from_pretrained = small_models.tokenizer
# Loading T5 puts another module object in the place of the one imported above.
sys.modules["transformers"].AdamW = torch.optim.AdamW
train_config.save_model = True
fsdp_config.save_optimizer = True
fsdp_config.verbose = True
fsdp_config.checkpoint_folder = "saved"
fsdp_config.model_save_name = fsdp_config.optimizer_name = "T5"
