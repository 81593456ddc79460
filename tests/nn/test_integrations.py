"""Losses and last layers where people use them: a plain loop, skorch, and the Trainer of Hugging Face."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from gaussify import LastLayer, MatchedBCEWithLogitsLoss, MatchedCrossEntropyLoss

N_CLASSES = 3


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(150) % N_CLASSES
    X = 4.0 * np.eye(N_CLASSES, 5)[y] + rng.normal(size=(150, 5))
    return X.astype(np.float32), y.astype(np.int64)


def make_network(n_outputs=N_CLASSES):
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, n_outputs))


@pytest.mark.parametrize("binary", [False, True])
def test_a_plain_loop_needs_one_line_changed(rows, binary):
    X, y = (torch.as_tensor(part) for part in rows)
    torch.manual_seed(0)
    network = make_network(1 if binary else N_CLASSES)
    loss = MatchedBCEWithLogitsLoss() if binary else MatchedCrossEntropyLoss(N_CLASSES)
    target = (y == 1).float()[:, None] if binary else y
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        loss(network(X), target).backward()
        optimiser.step()
    found = (network(X) > 0).float() if binary else network(X).argmax(1)
    assert (found == target).float().mean() > 0.95


def test_skorch_takes_the_loss_as_its_criterion(rows):
    skorch = pytest.importorskip("skorch")
    X, y = rows
    torch.manual_seed(0)
    model = skorch.NeuralNetClassifier(
        make_network,
        criterion=MatchedCrossEntropyLoss,
        criterion__n_classes=N_CLASSES,
        criterion__method="moment",
        optimizer=torch.optim.Adam,
        lr=0.02,
        max_epochs=30,
        predict_nonlinearity=lambda logits: logits.softmax(-1),
        train_split=None,
        verbose=0,
    ).fit(X, y)
    assert model.score(X, y) > 0.95
    assert (model.predict_proba(X).max(1) > 0.9).mean() > 0.5
    head = LastLayer.of(model.module_).fit(torch.as_tensor(X), torch.as_tensor(y))
    assert (head.predict(torch.as_tensor(X)).numpy() == y).mean() > 0.95


class Sentences(torch.utils.data.Dataset):
    """Token 1 or 2 among others tells the label."""

    def __init__(self, n):
        generator = torch.Generator().manual_seed(n)
        self.tokens = torch.randint(3, 20, (n, 8), generator=generator)
        self.labels = torch.arange(n) % 2
        self.tokens[:, 3] = self.labels + 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return {"input_ids": self.tokens[place], "labels": self.labels[place]}


@pytest.mark.parametrize("n_accumulated", [1, 2])
def test_the_trainer_of_hugging_face_takes_the_loss(n_accumulated, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)  # it is our folder tests/datasets
    matched = MatchedCrossEntropyLoss(2, reduction="sum")

    def compute_loss(outputs, labels, num_items_in_batch=None):
        return matched(outputs.logits, labels) / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    config = transformers.BertConfig(
        vocab_size=20, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=40,
        per_device_train_batch_size=40 // n_accumulated,
        gradient_accumulation_steps=n_accumulated,
        logging_steps=1,
        learning_rate=2e-3,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=0,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that are not ours
        transformers.set_seed(0)
        model = transformers.BertForSequenceClassification(config)
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=Sentences(200),
            compute_loss_func=compute_loss,
        )
        trainer.train()
        predicted = trainer.predict(Sentences(100))
    assert (predicted.predictions.argmax(-1) == predicted.label_ids).mean() > 0.95
    first = trainer.state.log_history[0]["loss"]  # the mean over rows, however many batches they come in
    with torch.no_grad():
        rows = Sentences(200)
        begin = transformers.BertForSequenceClassification(config).eval()
        untrained = matched(begin(rows.tokens).logits, rows.labels).item() / 200
    assert first == pytest.approx(untrained, rel=0.3)
    head = LastLayer.of(model).fit(torch.utils.data.DataLoader(Sentences(200), batch_size=50))
    assert (head.predict(Sentences(100)) == Sentences(100).labels).double().mean() > 0.95
