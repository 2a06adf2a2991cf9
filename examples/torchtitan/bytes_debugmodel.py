"""A configuration for torchtitan's own program: --module bytes_debugmodel --config debugmodel."""

import os
import tempfile
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader
from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.trainer import Trainer

from trainyard.adapters.torchtitan import NoticeCheckpointManager


def debugmodel() -> Trainer.Config:
    """Return torchtitan's Llama 3 debug model on the source of Python's standard library, as bytes."""
    DATASETS["standard_library"] = DatasetConfig(
        path="", loader=standard_library, sample_processor=lambda sample: sample["text"]
    )
    config = llama3_debugmodel()
    config.hf_assets_path = byte_tokenizer()
    config.dump_folder = os.environ.get("TRAINYARD_SCRATCH", "./outputs")
    config.dataloader = HuggingFaceTextDataLoader.Config(dataset="standard_library")
    config.checkpoint = NoticeCheckpointManager.Config(enable=True, interval=20)
    config.validator.enable = False
    return config


def standard_library(_: str) -> Dataset:
    """Return one sample per module."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return Dataset.from_list([{"text": file.read_text()} for file in files])


def byte_tokenizer() -> str:
    """Write a tokenizer of bytes; return its folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate([*alphabet, "<s>", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    folder = Path(tempfile.mkdtemp())
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    return str(folder)
