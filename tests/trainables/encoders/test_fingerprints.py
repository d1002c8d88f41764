"""What identifies a backbone, and that it stays what it is: pytest tests/trainables/encoders/test_fingerprints.py"""

import hashlib
import json
import shutil

import pytest
import torch
from helpers.configurations import config_of
from helpers.messages import one_line
from transformers import AutoConfig, AutoModel

from trainables.encoders import backbone_files, backbone_names
from trainables.encoders.backbone_files import backbone_digest, backbone_fingerprint
from trainables.encoders.backbone_names import MINI_BACKBONES, PUBLISHED_SIZES, UNTRAINED
from trainables.encoders.backbones import check_backbone
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.encoders.mini_backbones import mini_model, word_tokenizer

STATES = {  # first number of the first state, then of the pooled state, for each of two examples
    "albert": [-0.102, -0.461, -0.11, -0.149],
    "bert": [0.505, 0.277, -0.024, 0.007],
    "electra": [-1.258, -1.35],
    "roberta": [-0.886, -0.836],
    "sharebert": [1.569, 1.812, 0.724, 0.82],
}
TOKENS = (8005, [2, 5, 9, 1, 3, 5, 8, 1, 3], [0, 0, 0, 0, 0, 1, 1, 1, 1])  # number of tokens, their ids, their segments
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


@pytest.mark.parametrize("family", STATES)
def test_tiny_backbones_compute_what_their_versions_computed(family):
    torch.manual_seed(0)
    model = mini_model(family, 100, config_of("albert")).eval()
    tokens = torch.arange(5, 29).view(2, 12)
    mask = torch.ones_like(tokens)
    mask[1, 9:] = 0
    segments = torch.zeros_like(tokens) if family == "roberta" else torch.arange(12).ge(6).long().expand(2, -1)
    with torch.no_grad():
        output = model(input_ids=tokens, attention_mask=mask, token_type_ids=segments)
    pooled = output.pooler_output[:, 0].tolist() if "pooler_output" in output else []
    found = [*output.last_hidden_state[:, 0, 0].tolist(), *pooled]
    assert found == pytest.approx(STATES[family], abs=2e-3), CHANGED


def test_tokenizer_of_tiny_backbones_is_that_of_their_versions():
    many = " ".join(f"w{number}" for number in range(9_000))
    tokenizer = word_tokenizer(["A man, a plan.", many])
    pair = tokenizer("A plan!", "a man w8999")
    assert (len(tokenizer), pair["input_ids"], pair["token_type_ids"]) == TOKENS, CHANGED


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


def test_pinned_backbone_loads_its_commit_after_hub_moved(hub):
    pinned = backbone_names.pinned("someone/tiny-bert", backbone_fingerprint("someone/tiny-bert"))
    check_backbone(pinned)
    before = weights_of(pinned)
    (hub / "refs" / "main").write_text(SECOND)
    assert weights_of(pinned).equal(before)
    assert not weights_of("someone/tiny-bert").equal(before)
    assert load_tokenizer(pinned, texts=list).get_vocab() == load_tokenizer("someone/tiny-bert", texts=list).get_vocab()


def test_hub_backbone_digest_is_of_cached_files(hub):
    pinned = f"someone/tiny-bert@{FIRST}"
    before = backbone_files.backbone_digest(pinned)
    assert before != backbone_files.backbone_digest(f"someone/tiny-bert@{SECOND}")
    (hub / "snapshots" / FIRST / "vocab.txt").write_text("[PAD]")
    assert backbone_files.backbone_digest(pinned) != before


def test_a_commit_that_is_not_there_is_refused(hub, snapshot):
    with pytest.raises(ValueError) as raised:
        check_backbone(f"someone/tiny-bert@{'8' * 40}")
    assert one_line(raised.value) == snapshot
