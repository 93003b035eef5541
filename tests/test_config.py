"""Settings: defaults, overrides, suggestions; every packaged config is valid; every field has its help text."""

import pytest
import yaml
from pydantic import BaseModel

from counterpoint.config import Config, load_config
from counterpoint.errors import ConfigError
from counterpoint.methods import methods
from counterpoint.settings import packaged_configs


def test_the_default_is_the_bundled_model_on_the_bundled_tasks():
    config = load_config(None)
    assert config.model.name == "tiny"
    assert config.names == ("agent0", "agent1")
    assert (config.method.name, config.method.rounds, config.method.candidates) == ("propose_review", 5, 4)
    assert config.tasks.train == "mini-gsm"
    assert config.tasks.eval == ("mini-gsm", "mini-math", "mini-choice")


def test_yaml_round_trip_gives_the_same_config():
    config = load_config(None, ["method.rounds=3", "agents=3", "model=some/hub-name", "learner.lr=1e-3"])
    again = Config.model_validate(yaml.safe_load(config.to_yaml()))
    assert again == config
    assert again.sha256() == config.sha256()
    assert again.sha256() != load_config(None).sha256()


def test_overrides():
    config = load_config(
        None, ["agents=[{name: ann}, {name: bob, model: other}]", "model.dtype=float32", "tasks.eval=mini-gsm"]
    )
    assert config.names == ("ann", "bob")
    assert config.agents[1].model.name == "other"
    assert (config.model.name, config.model.dtype) == ("tiny", "float32")
    assert config.tasks.eval == ("mini-gsm",)
    named = load_config(None, ["tasks.eval.1.path=elsewhere", "tasks.train.limit=9"])
    assert named.tasks.eval == ("mini-gsm", {"source": "mini-math", "path": "elsewhere"}, "mini-choice")
    assert named.tasks.train == {"source": "mini-gsm", "limit": 9}
    assert load_config(None, ["steps=1", "steps=2"]).steps == 2
    assert load_config(None, ["method=propose_review", "method.rounds=2"]).method.rounds == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stepz=3", "unknown setting 'stepz'; did you mean 'steps'?"),
        ("learner.learning_rate=3", "unknown setting 'learner.learning_rate'"),
        ("method.rouns=3", "unknown setting 'rouns'; did you mean 'rounds'?"),
        ("method.name=propose_reviw", "unknown method 'propose_reviw'; did you mean 'propose_review'?"),
        ("steps=-1", "steps: Input should be greater than or equal to 0, got -1"),
        ("steps=many", "steps: Input should be a valid integer"),
        ("agents=0", "a team has at least 1 agent, got 0"),
        ("agents=[{name: a}, {name: a}]", "two agents share a name"),
        ("agents=[{name: a/b}]", "an agent's name is letters"),
        ("sampling.temperature=0", "training needs a spread of replies"),
        ("steps", "not of the form key=value"),
        ("steps.x=1", "steps"),
        ("tasks.eval.7.path=x", "'7' is not one of the entries 0 to 2"),
        ("learner.lr=[", "is not a YAML value"),
    ],
)
def test_mistakes(override, message):
    with pytest.raises(ConfigError) as caught:
        load_config(None, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_malformed_files(tmp_path):
    with pytest.raises(ConfigError, match=r"no config file 'nowhere.yaml'; packaged configs: .*tracer-qwen2.5-7b"):
        load_config("nowhere.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1")
    with pytest.raises(ConfigError, match="not YAML"):
        load_config(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="a config is a mapping of settings, got list"):
        load_config(tmp_path / "list.yaml")


@pytest.mark.parametrize("name", sorted(packaged_configs()))
def test_every_packaged_config_validates(name):
    config = load_config(name)
    assert Config.model_validate(yaml.safe_load(config.to_yaml())) == config
    assert packaged_configs()[name].read_text().startswith("# ")


def _models(model, seen):
    if model in seen:
        return
    seen.add(model)
    for field in model.model_fields.values():
        stack = [field.annotation]
        while stack:
            part = stack.pop()
            if isinstance(part, type) and issubclass(part, BaseModel):
                _models(part, seen)
            stack += getattr(part, "__args__", ())


def test_every_setting_has_its_help_text():
    seen = set()
    for model in (Config, *methods().values()):
        _models(model, seen)
    missing = [f"{m.__name__}.{n}" for m in seen for n, f in m.model_fields.items() if not f.description]
    assert [name for name in missing if not name.endswith(".name")] == []
