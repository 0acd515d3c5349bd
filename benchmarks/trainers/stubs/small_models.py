"""Models and tokenizers small enough for a CPU, in the place of those a trainer downloads."""

from __future__ import annotations

from typing import Any

import datasets
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

VOCABULARY = ["<pad>", "<unk>", "</s>", "Human:", "Assistant:", *dict.fromkeys(datasets.WORDS)]


def tokenizer(*_: Any, **__: Any) -> transformers.PreTrainedTokenizerFast:
    """Splits at white space; knows the words of the made-up texts."""
    ids = {word: number for number, word in enumerate(VOCABULARY)}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    whole = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", model_max_length=64
    )
    whole.batch_encode_plus = whole.__call__  # the name before transformers 5
    return whole


def gpt2(*_: Any, torch_dtype: torch.dtype = torch.float32, **__: Any) -> transformers.GPT2LMHeadModel:
    """Two blocks of 32 features; the same weights at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = transformers.GPT2Config(
            vocab_size=len(VOCABULARY),
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            bos_token_id=2,
            eos_token_id=2,
        )
        return transformers.GPT2LMHeadModel(config).to(torch_dtype)


def llama_config(*_: Any, **keywords: Any) -> transformers.LlamaConfig:
    """Two layers of 32 features."""
    return transformers.LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        **keywords,
    )


def t5(*_: Any, **__: Any) -> transformers.T5ForConditionalGeneration:
    """Two blocks of 32 features on either side, no dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = transformers.T5Config(
            vocab_size=len(VOCABULARY),
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=2,
            decoder_start_token_id=0,
        )
        return transformers.T5ForConditionalGeneration(config)
