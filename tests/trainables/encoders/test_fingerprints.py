"""What identifies a backbone, and that it stays what it is: pytest tests/trainables/encoders/test_fingerprints.py"""

import hashlib
import json
import shutil

import pytest
import torch
from helpers.configurations import config_of
from transformers import AutoConfig, AutoModel

from trainables.encoders import backbones
from trainables.encoders.backbones import (
    MINI_BACKBONES,
    PUBLISHED_SIZES,
    UNTRAINED,
    backbone_digest,
    backbone_fingerprint,
    check_backbone,
)
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.encoders.mini_backbones import mini_model

STATES = {  # first number of the first four states, with seed 0
    "albert": [-0.116, 0.937, 0.906, 0.106],
    "bert": [0.493, 1.059, 1.38, 1.231],
    "electra": [-1.267, -1.929, -0.567, 0.103],
    "roberta": [-0.886, -1.026, -0.697, 0.79],
    "sharebert": [1.552, 1.95, 1.71, 1.767],
}
SIZES = "d60fdb083b18e2e5"  # hash of PUBLISHED_SIZES


def saved(folder):
    """A tiny BERT with new weights and a tokenizer."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = AutoConfig.for_model("bert", vocab_size=50, max_position_embeddings=40, **sizes)
    AutoModel.from_config(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"]))
    return str(folder)


def weights_of(backbone):
    encoder = load_encoder(backbone, config_of("albert", max_length=32), vocab_size=7)
    return torch.cat([weight.flatten() for weight in encoder.state_dict().values()])


def test_fingerprint_changes_with_a_folder_s_files(tmp_path):
    folder = saved(tmp_path)
    before = backbone_fingerprint(folder)
    assert backbone_fingerprint(folder) == before
    (tmp_path / "vocab.txt").write_text("[PAD]")
    assert backbone_fingerprint(folder) != before


def test_fingerprint_does_not_change_with_the_place(tmp_path):
    folder = saved(tmp_path / "one")
    shutil.copytree(folder, tmp_path / "two")
    assert backbone_fingerprint(str(tmp_path / "two")) == backbone_fingerprint(folder)


CHANGED = "an untrained backbone has changed: give it a new version in UNTRAINED, and change this test"


def test_fingerprint_of_an_untrained_backbone_has_its_version():
    assert backbone_fingerprint("mini-albert") == "mini-albert@19aa5b248e942a92"
    assert backbone_digest("albert-base") == "f4a1ed7ad8c37f66"
    assert tuple(UNTRAINED) == (*MINI_BACKBONES, *PUBLISHED_SIZES)


@pytest.mark.parametrize("family, states", STATES.items())
def test_tiny_backbones_are_those_of_their_versions(family, states):
    torch.manual_seed(0)
    model = mini_model(family, 100, config_of("albert")).eval()
    with torch.no_grad():
        output = model(torch.arange(5, 21)[None]).last_hidden_state
    assert output[0, :4, 0].tolist() == pytest.approx(states, abs=2e-3), CHANGED


def test_sizes_of_untrained_backbones_are_those_of_their_versions():
    sizes = json.dumps({name: dict(size) for name, size in PUBLISHED_SIZES.items()}, sort_keys=True)
    assert hashlib.sha256(sizes.encode()).hexdigest()[:16] == SIZES, CHANGED


FIRST, SECOND = "0123" * 10, "4567" * 10  # commits


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The folder of a repository in the hub's local cache: two commits of other weights, `main` at the first."""
    for library in ("huggingface_hub.constants.HF_HUB_CACHE", "transformers.utils.hub.constants.HF_HUB_CACHE"):
        monkeypatch.setattr(library, str(tmp_path))
    repository = tmp_path / "models--someone--tiny-bert"
    for seed, commit in enumerate((FIRST, SECOND)):
        torch.manual_seed(seed)
        saved(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(FIRST)
    return repository


def test_fingerprint_of_a_hub_name_has_its_commit(hub):
    assert backbone_fingerprint("someone/tiny-bert") == f"someone/tiny-bert@{FIRST}"
    (hub / "refs" / "main").write_text(SECOND)
    assert backbone_fingerprint("someone/tiny-bert") == f"someone/tiny-bert@{SECOND}"
    assert backbone_fingerprint(f"someone/tiny-bert@{FIRST}") == f"someone/tiny-bert@{FIRST}"


def test_a_pinned_backbone_is_loaded_at_its_commit_after_the_hub_has_moved(hub):
    pinned = backbones.pinned("someone/tiny-bert", backbone_fingerprint("someone/tiny-bert"))
    check_backbone(pinned)
    before = weights_of(pinned)
    (hub / "refs" / "main").write_text(SECOND)
    assert weights_of(pinned).equal(before)
    assert not weights_of("someone/tiny-bert").equal(before)
    assert load_tokenizer(pinned, texts=list).get_vocab() == load_tokenizer("someone/tiny-bert", texts=list).get_vocab()


def test_digest_of_a_hub_backbone_is_of_the_files_in_the_cache(hub):
    pinned = f"someone/tiny-bert@{FIRST}"
    before = backbones.backbone_digest(pinned)
    assert before != backbones.backbone_digest(f"someone/tiny-bert@{SECOND}")
    (hub / "snapshots" / FIRST / "vocab.txt").write_text("[PAD]")
    assert backbones.backbone_digest(pinned) != before


def test_a_commit_that_is_not_there_is_refused(hub):
    with pytest.raises(ValueError, match=f"^backbone 'someone/tiny-bert@{'8' * 40}' is not in the local cache"):
        check_backbone(f"someone/tiny-bert@{'8' * 40}")
