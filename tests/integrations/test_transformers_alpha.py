"""How sparse: alpha set, saved, learned and annealed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import fenchel as fy
from fenchel.integrations.transformers import (
    AlphaAnnealing,
    get_alpha,
    learn_alpha,
    set_alpha,
    use_entmax_attention,
    use_entmax_loss,
)
from tests.integrations.hf_models import batch, build, like


@pytest.mark.parametrize("family", ["bert", "llama", "t5", "bart"])
def test_set_alpha_changes_every_layer(family):
    model, inputs = build(family, "entmax"), batch(family)
    set_alpha(model, 2)
    assert set(get_alpha(model).values()) == {2.0}
    expected = like(model, family, "sparsemax")(**inputs).logits
    assert torch.equal(model(**inputs).logits, expected)


def test_a_layer_may_have_its_own():
    model = build("llama", "entmax", entmax_alpha=1.25)
    set_alpha(model.model.layers[1], 2.0)
    assert get_alpha(model) == {
        "model.layers.0.self_attn": 1.25,
        "model.layers.1.self_attn": 2.0,
    }
    assert model.config.entmax_alpha == 1.25


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_alpha_is_saved_with_the_model(family, tmp_path):
    model, inputs = build(family, "sdpa"), batch(family)
    use_entmax_attention(model, 1.75)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, attn_implementation="entmax").eval()
    assert set(get_alpha(loaded).values()) == {1.75}
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")  # 5.23 on
def test_learned_alpha_is_one_a_head_and_moves():
    model, inputs = build("llama", "entmax"), batch("llama")
    before = model(**inputs).logits
    parameters = learn_alpha(model, 1.5, low=1.0, high=2.0)
    assert [p.shape for p in parameters] == [(4,), (4,)]
    assert "model.layers.0.self_attn.entmax_alpha.alpha_logit" in model.state_dict()
    torch.testing.assert_close(model(**inputs).logits, before)
    dense = model(**inputs, output_attentions=True).logits
    torch.testing.assert_close(dense, before, atol=2e-5, rtol=1e-4)
    model.gradient_checkpointing_enable()
    tokens = inputs["input_ids"]
    model.train()(tokens, labels=tokens).loss.backward()
    assert all(p.grad.isfinite().all() and (p.grad != 0).all() for p in parameters)
    torch.optim.SGD(parameters, 1.0).step()
    alphas = torch.tensor(list(get_alpha(model).values()))
    assert alphas.shape == (2, 4) and (alphas > 1).all() and (alphas < 2).all()
    assert alphas.unique().numel() == 8
    set_alpha(model, 1.5)
    assert not any("entmax_alpha" in key for key in model.state_dict())
    torch.testing.assert_close(model.eval()(**inputs).logits, before)


def test_learned_alpha_of_cross_attention_and_bfloat16():
    model = build("t5", "entmax").bfloat16()
    parameters = learn_alpha(model)
    assert len(parameters) == 6 and all(p.dtype == torch.float32 for p in parameters)
    model(**batch("t5")).logits.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in parameters)


def test_errors_of_alpha():
    model = build("llama", "entmax15")
    with pytest.raises(
        fy.FenchelError,
        match=r'set_alpha: expected a model with attn_implementation="entmax", the one whose alpha '
        r"can be set, but got 'entmax15'; use `use_entmax_attention\(model\)`\.",
    ):
        set_alpha(model, 2)
    with pytest.raises(fy.FenchelError, match=r"set_alpha: `alpha` must be above 0 .* got -0\.9"):
        set_alpha(model, -0.9)
    with pytest.raises(fy.FenchelError, match="expected a model whose attention looks up the regi"):
        set_alpha(torch.nn.Linear(2, 2), 2)
    with pytest.raises(fy.FenchelError, match=r"expected `model` to be a torch\.nn\.Module, but "):
        set_alpha("model", 2)
    use_entmax_attention(model)
    with pytest.raises(fy.FenchelError, match="learn_alpha: a learned `alpha` must start str"):
        learn_alpha(model, alpha=2.0)


class Headless(torch.nn.Module):
    """Looks up the registry, and says nothing of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="entmax")
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self):
        return ALL_ATTENTION_FUNCTIONS


def test_learned_alpha_needs_to_know_the_heads():
    with pytest.raises(
        fy.FenchelError,
        match=r"learn_alpha: expected Headless or its config to say its number of heads, but "
        r"neither has `num_attention_heads`, `num_heads` or `n_heads`\.",
    ):
        learn_alpha(Headless())
    set_alpha(Headless(), 2)  # which needs none


class Watch(transformers.TrainerCallback):
    """Write down alpha as the steps see it."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_substep_end(self, args, state, control, model, **_):
        self.on_step_end(args, state, control, model)

    def on_step_end(self, args, state, control, model, **_):
        (alpha,) = set(get_alpha(model).values())
        self.seen.append(alpha)


def trainer(model, tmp_path, callbacks, **options) -> transformers.Trainer:
    tokens = batch("llama")["input_ids"]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
        learning_rate=5e-3,
        **options,
    )
    data = [{"input_ids": row, "labels": row} for row in tokens.repeat(8, 1)]
    return transformers.Trainer(model, arguments, train_dataset=data, callbacks=callbacks)


def zeros_in_the_past(model, tokens) -> int:
    """How many weights are 0 that need not be."""
    weights = torch.cat(model(tokens, output_attentions=True).attentions)
    return int((weights == 0).tril().sum())


def test_annealing_in_a_trainer_makes_a_softmax_model_sparse(tmp_path):
    model = build("llama", "sdpa")
    tokens = batch("llama")["input_ids"]
    start = model(tokens, labels=tokens).loss
    use_entmax_attention(model, alpha=1.0)
    torch.testing.assert_close(model(tokens, labels=tokens).loss, start)
    assert zeros_in_the_past(model, tokens) == 0
    watch = Watch()
    run = trainer(
        model,
        tmp_path,
        [AlphaAnnealing(steps=4, delay=1), watch],
        max_steps=8,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
    )
    run.train()
    steps = [1.0, 1.0, 1.125, 1.25, 1.375, 1.5, 1.5, 1.5]
    assert watch.seen == [alpha for alpha in steps for _ in range(2)]
    assert model.eval()(tokens, labels=tokens).loss < start
    assert zeros_in_the_past(model, tokens) > 0
    assert model.config.entmax_alpha == 1.5


def test_entmax_loss_in_a_trainer_accumulates_as_one_batch(tmp_path):
    losses = {}
    for size, accumulated in ((4, 1), (1, 4)):
        model = build("llama", "entmax15")
        use_entmax_loss(model)
        run = trainer(
            model,
            tmp_path,
            [],
            max_steps=3,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulated,
            logging_steps=1,
            data_seed=0,
        )
        run.train()
        losses[size] = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
        result = run.evaluate(run.train_dataset)
        assert result["eval_loss"] < losses[size][0]
    assert len(losses[4]) == 3
    assert losses[1] == pytest.approx(losses[4], rel=1e-3)


def test_errors_of_annealing():
    for label, options in {"steps": {"steps": 0}, "delay": {"steps": 1, "delay": -1}}.items():
        with pytest.raises(fy.FenchelError, match=f"AlphaAnnealing: expected `{label}` to be an "):
            AlphaAnnealing(**options)
    with pytest.raises(fy.FenchelError, match="AlphaAnnealing: `start` must be above 0"):
        AlphaAnnealing(10, start=0.0)
