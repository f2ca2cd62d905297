"""Programs with transformers, written for two CUDA GPUs: tiny models that are made from configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import Dataset

SUITE = "programs: transformers"
TESTED = ("transformers", "torch")

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "mat",
    "rug",
    "good",
    "bad",
    "film",
    "was",
]


def tokenizer() -> Any:
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
DECODERS = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=32, n_embd=32, n_layer=4, n_head=4, n_positions=64, bos_token_id=2, eos_token_id=3
    ),
    "llama": lambda: transformers.LlamaConfig(
        vocab_size=32, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **SIZES
    ),
    "mistral": lambda: transformers.MistralConfig(
        vocab_size=32, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **SIZES
    ),
    "qwen2": lambda: transformers.Qwen2Config(
        vocab_size=32, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **SIZES
    ),
    "mixtral": lambda: transformers.MixtralConfig(
        vocab_size=32,
        num_key_value_heads=2,
        max_position_embeddings=64,
        num_local_experts=4,
        bos_token_id=2,
        eos_token_id=3,
        **SIZES,
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(
        vocab_size=32, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **SIZES
    ),
    "opt": lambda: transformers.OPTConfig(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        ffn_dim=64,
        word_embed_proj_dim=32,
        max_position_embeddings=64,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
    ),
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, bos_token_id=2, eos_token_id=3, pad_token_id=0
    ),
}


def decoder(kind: str) -> Any:
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(DECODERS[kind]()).eval()


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_answers_on_the_second_gpu(kind: str) -> None:
    model = decoder(kind)
    ids = torch.randint(5, 20, (2, 7))
    with torch.no_grad():
        expected = model(ids).logits
        model = model.to("cuda:1")
        assert model.device == torch.device("cuda:1")
        found = model(ids.to(model.device)).logits
    assert found.device == torch.device("cuda:1")
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize(
    "options", [{}, {"do_sample": True, "top_k": 5}, {"num_beams": 3}], ids=["greedy", "k", "beam"]
)
def test_a_decoder_generates_on_a_gpu(kind: str, options: dict[str, Any]) -> None:
    model = decoder(kind).cuda()
    ids = torch.randint(5, 20, (2, 4), device="cuda")
    if kind == "mamba" and "num_beams" in options:
        pytest.skip("Mamba's cache has no beams")
    found = model.generate(ids, max_new_tokens=6, min_new_tokens=6, pad_token_id=0, **options)
    assert found.shape == (2, 10)
    assert found.device == torch.device("cuda:0")
    if not options:
        again = model.cpu().generate(ids.cpu(), max_new_tokens=6, min_new_tokens=6, pad_token_id=0)
        assert torch.equal(found.cpu(), again)


@pytest.mark.parametrize("kind", [each for each in DECODERS if each != "mamba"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_saved_decoder_is_loaded_over_both_gpus(kind: str, attention: str, tmp_path: Path) -> None:
    source = decoder(kind)
    source.save_pretrained(tmp_path)
    size = sum(each.numel() * 4 for each in source.parameters())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map="auto", max_memory={0: int(size * 0.6), 1: size * 2}, attn_implementation=attention
    )
    assert {str(each.device) for each in model.parameters()} == {"cuda:0", "cuda:1"}
    assert set(model.hf_device_map.values()) == {0, 1}
    ids = torch.randint(5, 20, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(model(ids.cuda()).logits.cpu(), source(ids).logits, atol=1e-4, rtol=1e-4)
    assert model.generate(ids.cuda(), max_new_tokens=3, pad_token_id=0).is_cuda


@pytest.mark.parametrize("where", ["auto", "cuda:1", {"": 1}, "cuda", 0], ids=str)
def test_a_saved_model_is_loaded_where_it_is_asked_for(where: Any, tmp_path: Path) -> None:
    decoder("gpt2").save_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=where, dtype=torch.bfloat16)
    expected = torch.device("cuda:1") if where in ("cuda:1", {"": 1}) else torch.device("cuda:0")
    assert next(model.parameters()).dtype == torch.bfloat16
    if where != "auto":
        assert {each.device for each in model.parameters()} == {expected}
    assert model(torch.ones(1, 3, dtype=torch.long, device=model.device)).logits.is_cuda


def encoder(kind: Any = None, labels: int = 2) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, num_labels=labels, **SIZES)
    return (kind or transformers.BertForSequenceClassification)(config)


@pytest.mark.parametrize("device", [1, "cuda:1", torch.device("cuda", 1)], ids=str)
def test_a_pipeline_classifies_on_the_second_gpu(device: Any) -> None:
    ask = transformers.pipeline("text-classification", model=encoder().eval(), tokenizer=tokenizer(), device=device)
    assert ask.device == torch.device("cuda:1")
    assert ask.model.device == torch.device("cuda:1")
    found = ask(["the film was good", "the film was bad"], batch_size=2)
    assert len(found) == 2
    assert {each["label"] for each in found} <= {"LABEL_0", "LABEL_1"}


def test_a_pipeline_fills_a_mask_and_generates() -> None:
    masks = transformers.pipeline(
        "fill-mask", model=encoder(transformers.BertForMaskedLM).eval(), tokenizer=tokenizer(), device=0
    )
    assert len(masks("the cat sat on [MASK] mat")) == 5
    model = decoder("gpt2")
    write = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer(), device="cuda")
    assert write("the cat", max_new_tokens=4)[0]["generated_text"].startswith("the cat")
    tokens = transformers.pipeline(
        "token-classification",
        model=encoder(transformers.BertForTokenClassification).eval(),
        tokenizer=tokenizer(),
        device=1,
    )
    assert len(tokens("the cat")) == 2
    features = transformers.pipeline(
        "feature-extraction", model=encoder(transformers.BertModel).eval(), tokenizer=tokenizer(), device=1
    )
    assert len(features("the cat")[0]) == 2


class Films(Dataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        made = tokenizer()
        self.rows = [
            made(text) | {"labels": at % 2} for at, text in enumerate(["the film was good", "a bad film"] * 16)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@pytest.mark.parametrize("precision", [{}, {"bf16": True}, {"fp16": True}], ids=["float32", "bf16", "fp16"])
def test_the_trainer_trains_on_both_gpus(precision: dict[str, bool], tmp_path: Path) -> None:
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        max_steps=6,
        logging_steps=2,
        learning_rate=1e-2,
        report_to=[],
        save_steps=3,
        **precision,
    )
    assert options.device == torch.device("cuda:0")
    assert options.n_gpu == 2
    trainer = transformers.Trainer(
        model=encoder(),
        args=options,
        train_dataset=Films(),
        eval_dataset=Films(),
        data_collator=transformers.DataCollatorWithPadding(tokenizer()),
    )
    done = trainer.train()
    assert done.global_step == 6
    assert trainer.model.device == torch.device("cuda:0")
    losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    assert losses[-1] < losses[0]
    assert trainer.evaluate()["eval_loss"] < losses[0]
    assert trainer.predict(Films()).predictions.shape == (32, 2)
    assert (tmp_path / "checkpoint-6").exists()
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


def test_the_trainer_trains_a_decoder_with_gradient_checkpointing(tmp_path: Path) -> None:
    class Text(Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return {"input_ids": torch.arange(5, 13), "labels": torch.arange(5, 13)}

    options = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        logging_steps=1,
        gradient_checkpointing=True,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        dataloader_num_workers=1,
        dataloader_pin_memory=True,
    )
    trainer = transformers.Trainer(model=decoder("llama").train(), args=options, train_dataset=Text())
    trainer.train()
    losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    assert losses[-1] < losses[0]


def test_an_encoder_and_decoder_translate() -> None:
    config = transformers.T5Config(
        vocab_size=32, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).to("cuda:1").eval()
    ids = torch.randint(5, 20, (2, 6), device="cuda:1")
    assert model(input_ids=ids, labels=ids).loss.device == torch.device("cuda:1")
    assert model.generate(ids, max_new_tokens=5).device == torch.device("cuda:1")


def test_models_of_images_and_sound_answer_on_a_gpu() -> None:
    vit = transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=16, patch_size=4, num_labels=3, **SIZES)
    ).cuda(1)
    assert vit(pixel_values=torch.randn(2, 3, 16, 16, device="cuda:1")).logits.device == torch.device("cuda:1")
    whisper = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=64,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_mel_bins=8,
            max_source_positions=20,
            max_target_positions=20,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    ).to("cuda")
    sound = torch.randn(1, 8, 40, device="cuda")
    assert whisper(
        input_features=sound, decoder_input_ids=torch.ones(1, 3, dtype=torch.long, device="cuda")
    ).logits.is_cuda
    clip = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={"vocab_size": 32, "eos_token_id": 3, **SIZES},
            vision_config={"image_size": 16, "patch_size": 4, **SIZES},
        )
    ).cuda()
    found = clip(input_ids=torch.full((2, 4), 3, device="cuda"), pixel_values=torch.randn(2, 3, 16, 16, device="cuda"))
    assert found.logits_per_image.device == torch.device("cuda:0")


def test_a_batch_of_a_tokenizer_moves() -> None:
    batch = tokenizer()(["the cat sat", "a dog"], return_tensors="pt", padding=True).to("cuda:1")
    assert batch["input_ids"].device == torch.device("cuda:1")
    assert encoder().to("cuda:1")(**batch).logits.device == torch.device("cuda:1")


def test_a_streamer_and_static_cache_generate() -> None:
    model = decoder("llama").cuda()
    ids = torch.randint(5, 20, (1, 4), device="cuda")
    streamer = transformers.TextIteratorStreamer(tokenizer())
    model.generate(ids, max_new_tokens=5, streamer=streamer, pad_token_id=0)
    assert "".join(streamer)
    plain = model.generate(ids, max_new_tokens=5, pad_token_id=0, do_sample=False)
    static = model.generate(
        ids, max_new_tokens=5, pad_token_id=0, do_sample=False, cache_implementation="static", disable_compile=True
    )
    assert torch.equal(plain, static)


def test_memory_that_a_model_takes_is_counted() -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(1)
    model = decoder("gpt2").to("cuda:1")
    assert torch.cuda.memory_allocated(1) - before >= model.get_memory_footprint()
    del model
    import gc

    gc.collect()
    assert torch.cuda.memory_allocated(1) == before
