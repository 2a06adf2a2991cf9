"""Fine-tune a causal language model on chats with the Hugging Face Trainer, packing and LoRA.

Each line of `--chats` is {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}. Only
the assistant's words count in the loss. Without `--model` a small model of random parameters is trained, and
without `--chats` on questions about the functions of Python's standard library.
"""

import argparse
import ast
import json
import os
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from trainyard.adapters import hf_trainer
from trainyard.adapters.elastic_trainer import ElasticTrainer

TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
)


def main() -> None:
    """Train; resume from the run's newest checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="folder of a model with its tokenizer; default: random")
    parser.add_argument("--chats", type=Path, help="JSONL file of chats")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--steps", type=int, help="by groups that come and go, not by epochs")
    parser.add_argument("--length", type=int, default=256, help="tokens of a packed sample")
    parser.add_argument("--save-steps", type=int, default=20)
    parser.add_argument("--lora", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--output", default=tempfile.gettempdir() + "/hf-trainer")
    args = parser.parse_args()

    torch.manual_seed(0)
    if args.model:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForCausalLM.from_pretrained(args.model)
    else:
        tokenizer, model = small_tokenizer(), small_model()
    if args.lora:
        wanted = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules="all-linear")
        model = get_peft_model(model, wanted)
    chats = read_chats(args.chats) if args.chats else standard_library_chats()
    trainer = (GroupTrainer if args.steps else Trainer)(
        model=model,
        args=TrainingArguments(
            output_dir=args.output,
            num_train_epochs=args.epochs,
            max_steps=args.steps or -1,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            warmup_steps=5,
            logging_steps=1,
            save_steps=args.save_steps,
            save_total_limit=1,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
            ddp_find_unused_parameters=False,
        ),
        train_dataset=pack(chats, tokenizer, args.length),
        callbacks=[] if args.steps else [hf_trainer.NoticeCallback()],
    )
    # Groups save and resume by themselves.
    trainer.train(resume_from_checkpoint=None if args.steps else hf_trainer.latest())


class GroupTrainer(ElasticTrainer):
    """Prints each step that this group takes; ElasticTrainer does without."""

    def training_step(self, *args, **kwargs) -> torch.Tensor:
        """Take a step."""
        loss = super().training_step(*args, **kwargs)
        number = self.state.global_step + 1
        print(f"step {number} loss {self.loss!r} groups {self.run.groups}", flush=True)
        return loss


def pack(chats: list[dict], tokenizer: PreTrainedTokenizerFast, length: int) -> list[dict]:
    """Join chats into samples of exactly `length` tokens; labels of other roles are -100.

    Positions start at 0 in each chat, so that models with variable-length attention keep chats apart.
    """
    columns: dict[str, list[int]] = {"input_ids": [], "labels": [], "position_ids": []}
    for chat in chats:
        encoded = tokenizer.apply_chat_template(
            chat["messages"], return_dict=True, return_assistant_tokens_mask=True
        )
        ids, own = encoded["input_ids"], encoded["assistant_masks"]
        columns["input_ids"] += ids
        columns["labels"] += [i if is_own else -100 for i, is_own in zip(ids, own, strict=True)]
        columns["position_ids"] += range(len(ids))
    return [
        {name: values[start : start + length] for name, values in columns.items()}
        for start in range(0, len(columns["input_ids"]) - length + 1, length)
    ]


def read_chats(file: Path) -> list[dict]:
    """Return the chats of a JSONL file."""
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def standard_library_chats() -> list[dict]:
    """Return 200 questions: what a function of the standard library does, answered by its docstring."""
    chats = []
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and (answer := ast.get_docstring(node)):
                question = {"role": "user", "content": f"What does {file.stem}.{node.name} do?"}
                answers = {"role": "assistant", "content": answer.splitlines()[0]}
                chats.append({"messages": [question, answers]})
        if len(chats) >= 200:
            break
    return chats[:200]


def small_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate([*alphabet, "<|end|>"])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def small_model() -> LlamaForCausalLM:
    """Return a Llama of random parameters: 2 layers of width 64."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=257,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


if __name__ == "__main__":
    main()
