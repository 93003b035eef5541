"""Loading a base model: templates, errors, hashes; the bundled model as any other."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from counterpoint.errors import ConfigError
from counterpoint.lora import LoraSettings
from counterpoint.models import Model, ModelSettings, model_path
from counterpoint.prompts import solve
from counterpoint.records import Message
from counterpoint.testing import TASKS


def load(name, **settings):
    return Model(ModelSettings(name=str(name), device="cpu", **settings), ["a/x"], lora=LoraSettings(), seed=0)


def with_template(micro, tmp_path, template):
    folder = tmp_path / "model"
    shutil.copytree(micro, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_bundled_model_loads_like_any_other():
    model = load("tiny")
    ids = model.encode(solve(TASKS[0]))
    assert "3 + 4" in model.tokenizer.decode(ids)
    assert model.decode([*ids[-3:], *model.eos]) == model.decode(ids[-3:])
    assert 1 <= sum(f.stat().st_size for f in Path(model_path("tiny")).iterdir()) / 2**20 <= 8


def test_any_text_survives_the_bundled_tokenizer():
    """Byte-level: what an agent writes reaches the next one as written."""
    tokenizer = AutoTokenizer.from_pretrained(model_path("tiny"))
    for text in ("Final answer: 42", "12+30=42\n\\boxed{\\frac{3}{4}}", "naïve — 日本 🙂\t  two  spaces"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert len(tokenizer("1234567", add_special_tokens=False)["input_ids"]) == 7  # a token a digit


def test_pad_is_not_eos():
    tokenizer = AutoTokenizer.from_pretrained(model_path("tiny"))
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_a_template_without_a_system_role_gets_it_in_the_users_message(micro, tmp_path):
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    model = load(with_template(micro, tmp_path, template))
    ids = model.encode((Message("system", "Be brief."), Message("user", "3 + 4?")))
    assert model.tokenizer.decode(ids) == "[user]Be brief.\n\n3 + 4?"


def test_a_base_model_without_a_template_is_an_error_unless_plain(micro, tmp_path):
    folder = with_template(micro, tmp_path, None)
    with pytest.raises(ConfigError, match=r"has no chat template; set model\.chat_template=plain"):
        load(folder)
    model = load(folder, chat_template="plain")
    assert model.tokenizer.decode(model.encode((Message("system", "A"), Message("user", "B")))) == "A\n\nB\n\n"


def test_a_name_that_leads_nowhere(tmp_path):
    with pytest.raises(ConfigError, match="cannot load model"):
        load(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="no GGUF file"):
        load(tmp_path / "nothing.gguf")


def test_hash_tells_models_apart(micro):
    assert load(micro).sha256 == load(micro).sha256
    assert load(micro).sha256 != load("tiny").sha256


def test_dtype_follows_the_device(micro):
    assert load(micro).dtype == torch.float32
    assert load(micro, dtype="bfloat16").dtype == torch.bfloat16


def test_models_that_cap_their_logits_take_the_long_way(micro):
    """hidden() returns the logits themselves where the head is not all there is to them."""
    model = load(micro)
    assert model.plain_head
    ids = torch.tensor([[3, 4, 5]])
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    with torch.no_grad():
        short = model.head(model.hidden(ids, torch.arange(3)[None], mask))
        model.plain_head = False
        assert torch.equal(model.head(model.hidden(ids, torch.arange(3)[None], mask)), short)
