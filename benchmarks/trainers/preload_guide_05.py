"""A small Llama and its tokenizer in the place of a download; plain attention in the place of a GPU's."""

import small_models
import transformers

from_config = transformers.AutoModelForCausalLM.from_config


def without_flash_attention(config, attn_implementation=None, **keywords):
    """FlashAttention has no CPU kernels."""
    return from_config(config, attn_implementation="eager", **keywords)


def pretrained(name, attn_implementation=None, use_cache=None, **keywords):
    """The model with the weights it is born with."""
    return without_flash_attention(small_models.llama_config(use_cache=use_cache), **keywords)


transformers.AutoConfig.from_pretrained = small_models.llama_config
transformers.AutoModelForCausalLM.from_config = without_flash_attention
transformers.AutoModelForCausalLM.from_pretrained = pretrained
transformers.AutoTokenizer.from_pretrained = small_models.tokenizer
