"""Models of transformers, of one layer, with random weights."""

import torch
import transformers as hf
from transformers.models.whisper.modeling_whisper import WhisperEncoder

IDS = torch.arange(14).reshape(2, 7) + 3
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
IMAGE = torch.rand(2, 3, 32, 32)
SOUND = torch.rand(2, 400)

COMMON = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PICTURES = {**COMMON, "image_size": 32, "patch_size": 8}


def _text(config, model, options, extra):
    """A model of token ids, in eval mode."""
    made = getattr(hf, config)(**{**COMMON, **options})
    return getattr(hf, model)(made).eval(), (IDS,), extra


def _picture(config, model, options):
    return getattr(hf, model)(getattr(hf, config)(**{**PICTURES, **options})).eval(), (IMAGE,), {}


HEADS = {"num_key_value_heads": 1, "head_dim": 8}
MASKED = {"attention_mask": MASK}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
BART = {
    **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 1},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    **{"encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
}
GPT2 = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}

TEXTS = {
    "BERT": ("BertConfig", "BertModel", {}, MASKED),
    "BERT, masked words": ("BertConfig", "BertForMaskedLM", {}, {}),
    "RoBERTa": ("RobertaConfig", "RobertaModel", {}, MASKED),
    "ELECTRA": ("ElectraConfig", "ElectraModel", {"embedding_size": 16}, {}),
    "DistilBERT": (
        *("DistilBertConfig", "DistilBertModel"),
        *({"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}, MASKED),
    ),
    "ALBERT": ("AlbertConfig", "AlbertModel", {"embedding_size": 16}, {}),
    "MPNet": ("MPNetConfig", "MPNetModel", {}, {}),
    "DeBERTa v2": ("DebertaV2Config", "DebertaV2Model", {}, {}),
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", GPT2, {}),
    "GPT-2, masked": ("GPT2Config", "GPT2LMHeadModel", GPT2, MASKED),
    "GPT-2, last logits": ("GPT2Config", "GPT2LMHeadModel", GPT2, {"logits_to_keep": 2}),
    "GPT-NeoX": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}, {}),
    "GPT-J": (
        *("GPTJConfig", "GPTJForCausalLM"),
        *({"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32, "rotary_dim": 4}, {}),
    ),
    "OPT": ("OPTConfig", "OPTForCausalLM", {"ffn_dim": 32, "word_embed_proj_dim": 16}, {}),
    "BLOOM": ("BloomConfig", "BloomForCausalLM", {"n_layer": 1, "n_head": 2}, {}),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", HEADS, {}),
    "Llama, no cache": ("LlamaConfig", "LlamaModel", HEADS, {"use_cache": False}),
    "Llama, all states": ("LlamaConfig", "LlamaModel", HEADS, {"output_hidden_states": True}),
    "Mistral": ("MistralConfig", "MistralForCausalLM", {**HEADS, "sliding_window": None}, {}),
    "Mistral, window": ("MistralConfig", "MistralForCausalLM", HEADS, {}),
    "Qwen2": ("Qwen2Config", "Qwen2ForCausalLM", HEADS, {}),
    "Qwen3": ("Qwen3Config", "Qwen3ForCausalLM", HEADS, {}),
    "Gemma": ("GemmaConfig", "GemmaForCausalLM", HEADS, {}),
    "Phi": ("PhiConfig", "PhiForCausalLM", {}, {}),
    "StableLM": ("StableLmConfig", "StableLmForCausalLM", HEADS, {}),
    "OLMo": ("OlmoConfig", "OlmoForCausalLM", HEADS, {}),
    "T5, encoder": ("T5Config", "T5EncoderModel", T5, MASKED),
    "T5": ("T5Config", "T5Model", T5, {"decoder_input_ids": IDS}),
    "BART": ("BartConfig", "BartModel", BART, {}),
    "Falcon": ("FalconConfig", "FalconForCausalLM", {}, {}),
    "MPT": ("MptConfig", "MptForCausalLM", {"d_model": 16, "n_heads": 2, "n_layers": 1}, {}),
    "Cohere": ("CohereConfig", "CohereForCausalLM", HEADS, {}),
    "Granite": ("GraniteConfig", "GraniteForCausalLM", HEADS, {}),
    "SmolLM3": ("SmolLM3Config", "SmolLM3ForCausalLM", HEADS, {}),
    "Phi 3": ("Phi3Config", "Phi3ForCausalLM", HEADS, {}),
    "Starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", HEADS, {"use_cache": False}),
    "CodeGen": (
        *("CodeGenConfig", "CodeGenForCausalLM"),
        *({"hidden_size": 64, "num_attention_heads": 4, "rotary_dim": 8}, {}),
    ),
    "GPT-Neo": (
        *("GPTNeoConfig", "GPTNeoForCausalLM"),
        *({"num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]}, {}),
    ),
    "XGLM": (
        *("XGLMConfig", "XGLMForCausalLM"),
        *({"d_model": 16, "ffn_dim": 32, "num_layers": 1, "attention_heads": 2}, {}),
    ),
    "CamemBERT": ("CamembertConfig", "CamembertModel", {}, {}),
    "XLM-RoBERTa": ("XLMRobertaConfig", "XLMRobertaModel", {}, MASKED),
    "MobileBERT": (
        *("MobileBertConfig", "MobileBertModel"),
        *({"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}, {}),
    ),
    "SqueezeBERT": ("SqueezeBertConfig", "SqueezeBertModel", {"embedding_size": 16}, {}),
    "RoFormer": ("RoFormerConfig", "RoFormerModel", {"embedding_size": 16}, {}),
    "FNet": ("FNetConfig", "FNetModel", {}, {}),
    "Marian": ("MarianConfig", "MarianModel", BART, {"decoder_input_ids": IDS}),
    "Pegasus": ("PegasusConfig", "PegasusModel", BART, {"decoder_input_ids": IDS}),
    "mBART": ("MBartConfig", "MBartModel", BART, {}),
    "ModernBERT": (
        *("ModernBertConfig", "ModernBertModel"),
        *({"attn_implementation": "sdpa", "reference_compile": False}, {}),
    ),
    "Mamba": ("MambaConfig", "MambaForCausalLM", {"state_size": 4}, {"use_cache": False}),
    "Mamba, cache": ("MambaConfig", "MambaForCausalLM", {"state_size": 4}, {}),
}


def _sound(config, model):
    """A model of waves, whose convolutions shorten them first."""
    options = {
        **{"conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [5, 2]},
        **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2},
        **{"num_feat_extract_layers": 2, "mask_time_prob": 0.0},
    }
    made = getattr(hf, config)(**{**COMMON, **options})
    return getattr(hf, model)(made).eval(), (SOUND,), {}


def _clip():
    text, picture = {**COMMON, "eos_token_id": 2}, PICTURES
    config = hf.CLIPConfig(text_config=text, vision_config=picture, projection_dim=8)
    return hf.CLIPModel(config).eval(), (), {"input_ids": IDS, "pixel_values": IMAGE}


def _whisper():
    config = hf.WhisperConfig(**{**COMMON, **BART}, num_mel_bins=8, max_source_positions=10)
    return WhisperEncoder(config).eval(), (torch.rand(2, 8, 20),), {}


MODULES = {
    **{name: lambda row=row: _text(*row) for name, row in TEXTS.items()},
    "CLIP": _clip,
    "Whisper, encoder": _whisper,
    "ViT": lambda: _picture("ViTConfig", "ViTModel", {}),
    "DeiT": lambda: _picture("DeiTConfig", "DeiTModel", {}),
    "SigLIP, pictures": lambda: _picture("SiglipVisionConfig", "SiglipVisionModel", {}),
    "ViT-MSN": lambda: _picture("ViTMSNConfig", "ViTMSNModel", {}),
    "SegFormer": lambda: _picture(
        "SegformerConfig",
        "SegformerModel",
        {
            **{"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2},
            **{"num_attention_heads": [1, 2], "sr_ratios": [2, 1], "patch_sizes": [7, 3]},
            **{"strides": [4, 2], "mlp_ratios": [2, 2]},
        },
    ),
    "ResNet": lambda: _picture(
        *("ResNetConfig", "ResNetModel"),
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    ),
    "Wav2Vec2": lambda: _sound("Wav2Vec2Config", "Wav2Vec2Model"),
    "HuBERT": lambda: _sound("HubertConfig", "HubertModel"),
    "DINOv2": lambda: _picture("Dinov2Config", "Dinov2Model", {}),
    "BEiT": lambda: _picture("BeitConfig", "BeitModel", {}),
    "ConvNeXt": lambda: _picture(
        "ConvNextConfig",
        "ConvNextModel",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    ),
}
