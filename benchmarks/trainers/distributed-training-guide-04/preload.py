"""A small Llama and its tokenizer in the place of a download."""

import small_models
import transformers

transformers.AutoConfig.from_pretrained = small_models.llama_config
transformers.AutoTokenizer.from_pretrained = small_models.tokenizer
