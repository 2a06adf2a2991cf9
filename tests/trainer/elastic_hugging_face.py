"""A program of the Hugging Face Trainer with groups: `elastic_hugging_face.py STEPS`."""

import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback, TrainingArguments

from trainyard.adapters.elastic_trainer import ElasticTrainer

torch.set_num_threads(1)
torch.manual_seed(1)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "attention_dropout": 0.1}
model = LlamaForCausalLM(LlamaConfig(vocab_size=257, **sizes, **heads))
samples = [(torch.arange(17) * factor) % 257 for factor in range(1, 100)]


class Report(TrainerCallback):  # type: ignore[misc]
    """Prints every step."""

    def on_optimizer_step(self, *_: object, **__: object) -> None:
        run = trainer.run
        print(f"step {run.step} loss {trainer.loss!r} groups {run.groups}", flush=True)


arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=int(sys.argv[1]),
    per_device_train_batch_size=2,
    learning_rate=1e-3,
    lr_scheduler_type="inverse_sqrt",
    warmup_steps=10,
    report_to=[],
    save_strategy="no",
    logging_strategy="no",
    disable_tqdm=True,
    use_cpu=True,
    seed=1,
)
dataset = [{"input_ids": sample, "labels": sample} for sample in samples]
trainer = ElasticTrainer(model=model, args=arguments, train_dataset=dataset, callbacks=[Report()])
trainer.train()
