"""An exported tokenizer gives the dataset's tokens in transformers, whatever the model type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from trainer.checkpoint import tokenizer_export
from trainer.checkpoint.tokenizer_export import TokenizerExportError, export_files
from trainer.prepare.tokens import BytesEncoder, Encoder, TokenizerEncoder, train_tokenizer

TEXTS = [
    "It's 12345  spaces\n\n\ttab and\r\nlines; don't I'LL we've",
    " leading and trailing ",
    "naïve café, ﬁne, e\u0301, 東京, 🙂🙂, عربى",
    "def f(x):\n    return x**2  # 3.14e-10",
    "spelled <|endoftext|> and </s> and <s> and <pad> and <|padding|>",
    "",
]
LEARNED_FROM = [*TEXTS[:4], Path(tokenizer_export.__file__).read_text()]


def byte_level() -> Encoder:
    """As `--tokenizer train:VOCAB` does."""
    return train_tokenizer(LEARNED_FROM, 300)


def llama_2() -> Encoder:
    """Byte fallback, a normalizer that marks spaces, and a post-processor that adds <s>; pads."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<unk>", "<s>", "</s>", "<pad>"]
    trainer = trainers.BpeTrainer(vocab_size=260, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(LEARNED_FROM, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.enable_padding(pad_id=3, pad_token="<pad>", length=64)
    tokenizer.enable_truncation(5)
    return TokenizerEncoder(tokenizer.to_str().encode(), None, "llama 2")


def unigram() -> Encoder:
    """As of sentencepiece, with a boundary that is an ordinary added token."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=280, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LEARNED_FROM, trainer)
    tokenizer.add_tokens([AddedToken("<eos>", normalized=False)])
    return TokenizerEncoder(tokenizer.to_str().encode(), None, "unigram")


def tokens_of(encoder: Encoder) -> dict[str, Any]:
    return {**encoder.record, "boundary": encoder.boundary}


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


NAMED = {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gpt_neox", "gpt2"}


def model_types(*, every: bool) -> list[str]:
    """Types of causal language models: all, or those named and one per tokenizer class."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as MODELS
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES as TOKENIZERS

    # The excluded one drafts for another model; its configuration has no valid defaults.
    types = sorted(MODELS.keys() - {"gemma4_assistant"})
    one_each = {TOKENIZERS.get(kind): kind for kind in types}
    return types if every else sorted(NAMED | set(one_each.values()))


@pytest.mark.parametrize("make", [byte_level, llama_2, unigram, BytesEncoder])
def test_every_model_type_loads_the_tokens_of_the_dataset(
    make: Callable[[], Encoder], tmp_path: Path, full: bool
) -> None:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    encoder = make()
    wanted = [tokens.tolist() for tokens in encoder.encode([text.encode() for text in TEXTS])]
    for kind in model_types(every=full):
        files = export_files({"model_type": kind}, tokens_of(encoder), encoder.file)
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        loaded: Any = AutoTokenizer.from_pretrained(tmp_path)
        for text, ids in zip(TEXTS, wanted, strict=True):
            assert loaded(text)["input_ids"] == ids, (kind, text)
        assert len(loaded) == encoder.vocab_size, kind
        assert loaded.eos_token_id == encoder.boundary, kind
        if kind in NAMED:
            assert AutoConfig.from_pretrained(tmp_path).eos_token_id == encoder.boundary, kind
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == encoder.boundary


def test_a_byte_tokenizer_decodes_what_it_has_encoded(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    files = export_files({"model_type": "llama"}, tokens_of(BytesEncoder()), None)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    loaded: Any = AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert loaded.decode(loaded(text)["input_ids"]) == text


def test_an_export_that_transformers_would_load_otherwise_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = byte_level()
    plain = tokenizer_export._tokenizer_config
    monkeypatch.setattr(tokenizer_export, "_load_as_written", plain)
    with pytest.raises(
        TokenizerExportError, match=r"type qwen2: .*Qwen2Tokenizer has another pre_tokenizer"
    ):
        export_files({"model_type": "qwen2"}, tokens_of(encoder), encoder.file)


@pytest.mark.parametrize(
    ("file", "reason"), [(None, "has no tokenizer.json"), (b"{}", "is not the one")]
)
def test_a_checkpoint_without_its_tokenizer_is_refused(file: bytes | None, reason: str) -> None:
    with pytest.raises(TokenizerExportError, match=reason):
        export_files({"model_type": "llama"}, tokens_of(byte_level()), file)


def test_a_configuration_that_transformers_cannot_load_is_refused_with_its_reason() -> None:
    with pytest.raises(TokenizerExportError, match="not a multiple of the number of attention"):
        export_files({"model_type": "llama", "hidden_size": 3}, tokens_of(BytesEncoder()), None)


def test_settings_of_the_model_are_kept() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "eos_token_id": 2, "bos_token_id": 1}
    files = export_files(config, tokens_of(BytesEncoder()), None)
    exported = json.loads(files["config.json"])
    assert exported == {**config, "eos_token_id": 256, "bos_token_id": 256}
