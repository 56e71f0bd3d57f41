"""A tiny BERT with the Trainer of Hugging Face, which goes on from its last checkpoint.

torchrun --standalone --nproc-per-node 4 examples/scripts/with_trainer.py
dayfly run --workers 4 examples/scripts/with_trainer.py

It knows nothing of dayfly, and downloads nothing: the first word of a text says its class.
Needs transformers and accelerate.
"""

import os

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

EPOCHS, BATCH, WORDS, LENGTH = 6, 32, 24, 6


class Texts(Dataset):
    """Made-up texts, always the same ones."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(1, WORDS, (size, LENGTH), generator=generator)
        self.labels = (self.words[:, 0] > WORDS // 2).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.labels[index]}


class Say(TrainerCallback):
    """Says what was measured after each epoch."""

    def on_evaluate(self, args, state, control, metrics, **others):
        if state.is_world_process_zero:
            loss, accuracy = metrics["eval_loss"], metrics["eval_accuracy"]
            print(f"epoch {state.epoch:g}: loss {loss:.5f}, accuracy {accuracy:.4f}", flush=True)


def accuracy_of(predicted):
    return {"accuracy": float(np.mean(predicted.predictions.argmax(-1) == predicted.label_ids))}


def main():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
    )
    arguments = TrainingArguments(
        output_dir="trainer",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=3,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Texts(1024, 1),
        eval_dataset=Texts(256, 2),
        compute_metrics=accuracy_of,
        callbacks=[Say()],
    )
    last = get_last_checkpoint("trainer") if os.path.isdir("trainer") else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
