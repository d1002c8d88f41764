"""ShareBERT's matrices, model and folders: pytest tests/trainables/encoders/test_sharebert.py"""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from helpers import plain_sharebert
from helpers.configurations import config_of
from helpers.messages import one_line
from helpers.walked_layers import padded, walk
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM

import trainables
from trainables.data.tasks import TASKS
from trainables.encoders.backbones import check_backbone, find_family, has_new_pooler
from trainables.encoders.layerwise import layerwise
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.encoders.sharebert import ShareBertConfig, ShareBertForMaskedLM, ShareBertModel

SIZES = plain_sharebert.SIZES


# Its matrices.


def model_of(**changes):
    torch.manual_seed(0)
    return ShareBertModel(ShareBertConfig(**(SIZES | changes))).eval()


def batch_of(num_tokens=9):
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(num_tokens) < torch.tensor([[num_tokens], [4], [6]])).long()
    return {"input_ids": torch.randint(200, (3, num_tokens), generator=generator), "attention_mask": mask}


def loss_of(model, batch):
    output = model(**batch)
    return output.last_hidden_state.square().mean() + output.pooler_output.square().mean()


def test_matrices_are_cut_from_the_right_edge_and_share_no_number():
    model = model_of()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.zero_()
        model.embeddings.factor_linear_all.bias.copy_(torch.arange(24))  # W is its columns' numbers in every row
    model(**batch_of())
    columns = {
        "query": {21, 22, 23},
        "key": {18, 19, 20},
        "value": {15, 16, 17},
        "intermediate": {12, 13, 14},
        "output": {9, 10, 11},
        "attention_output": {6, 7, 8},
        "pooler": {3, 4, 5},
    }
    assert {name: set(model.embeddings.shared[name].flatten().tolist()) for name in columns} == columns


def test_sizes_may_take_all_columns(snapshot):
    sizes = {"vocab_size": 144, "hidden_size": 24, "num_attention_heads": 2}
    model_of(**sizes, intermediate_size=12)  # 5 x 24 x 24 / 144 + 2 x 24 x 12 / 144 = 24 columns
    with pytest.raises(ValueError) as raised:
        model_of(**sizes, intermediate_size=13)
    assert one_line(raised.value) == snapshot


def test_mini_vocabulary_fits_only_wide_feed_forward():
    sizes = {"vocab_size": 288, "hidden_size": 32, "num_attention_heads": 2}
    model_of(**sizes, intermediate_size=32)
    with pytest.raises(ValueError, match="cuts 36 columns"):
        model_of(**sizes, intermediate_size=64)


@torch.no_grad()
def change_in_place(model):
    model.embeddings.word_embeddings.weight.mul_(3)


def step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    loss_of(model, batch_of()).backward()
    optimizer.step()


def load_others(model):
    model.load_state_dict(model_of(initializer_range=0.5).state_dict())


@pytest.mark.parametrize("change", [change_in_place, step, load_others])
def test_kept_matrices_are_those_of_the_weights_as_they_are_now(change):
    model, batch = model_of(initializer_range=0.3), batch_of()
    with torch.no_grad():
        before = model(**batch).pooler_output
    change(model)
    fresh = model_of()
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(**batch).pooler_output, fresh(**batch).pooler_output)
        assert not torch.allclose(model(**batch).pooler_output, before, atol=1e-3)


@torch.no_grad()
def test_matrices_are_made_once_for_many_evaluations_in_one_precision():
    model, batch = model_of(), batch_of()
    model(**batch)
    first = model.embeddings.shared["query"]
    model(**batch)
    assert model.embeddings.shared["query"] is first
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(**batch)
    assert model.embeddings.shared["query"].dtype == torch.bfloat16
    model(**batch)
    assert model.embeddings.shared["query"].dtype == torch.float32


def test_gradients_add_up_over_batches():
    model, batch = model_of(initializer_range=0.3), batch_of()
    with torch.no_grad():
        model(**batch)
    for _ in range(2):
        loss_of(model, batch).backward()
    twice = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    loss_of(model, batch).backward()
    for grad, parameter in zip(twice, model.parameters(), strict=True):
        torch.testing.assert_close(grad, 2 * parameter.grad)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_matrices_of_its_own(copied):
    model, batch = model_of(initializer_range=0.3), batch_of()
    loss_of(model, batch).backward()
    other = copied(model)
    with torch.no_grad():
        other.embeddings.word_embeddings.weight.zero_()
        before = model(**batch).pooler_output
        assert not torch.allclose(other(**batch).pooler_output, before, atol=1e-3)
        assert torch.equal(model(**batch).pooler_output, before)


# The model.


@torch.no_grad()
def test_initial_weights_follow_original_and_seed():
    sizes = {"vocab_size": 2000, "hidden_size": 200, "num_attention_heads": 4, "pad_token_id": 0}
    model, again = model_of(**sizes), model_of(**sizes)
    assert all(map(torch.equal, model.parameters(), again.parameters()))
    biases = torch.cat([bias for layer in model.layers for bias in layer.biases.values()])
    assert biases.mean().abs() < 0.1 and biases.std() == pytest.approx(1, abs=0.1)
    assert model.pooler.bias.std() == pytest.approx(1, abs=0.2)
    words = model.embeddings.word_embeddings.weight
    assert words.std() == pytest.approx(0.02, rel=0.1) and words[0].any()  # the pad token's is no exception
    assert not model.embeddings.factor_linear_all.bias.any()


@torch.no_grad()
def test_pads_and_batch_mates_change_nothing():
    model, batch = model_of(initializer_range=0.3), batch_of()
    states = model(**batch).last_hidden_state[1, :4]
    other = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 7)
    other[0] = 5
    garbage = model(other, batch["attention_mask"]).last_hidden_state[1, :4]
    alone = model(batch["input_ids"][1:2, :4]).last_hidden_state[0]
    assert torch.equal(garbage, states)
    torch.testing.assert_close(alone, states, rtol=0, atol=1e-5)


@torch.no_grad()
def test_first_layers_are_those_of_the_whole_model():
    model, batch = model_of(initializer_range=0.3), batch_of()
    shorter = model_of(num_hidden_layers=1)
    shorter.load_state_dict(model.state_dict(), strict=False)
    encoder = layerwise(model, num_layers=1)
    first = encoder.layer(0, encoder.embed(**batch)).first()
    torch.testing.assert_close(encoder.pool(first), shorter(**batch).pooler_output)
    torch.testing.assert_close(encoder.final_norm(first), shorter(**batch).last_hidden_state[:, 0])


@torch.no_grad()
def test_a_head_on_the_first_token_stands_above_the_last_normalisation():
    config = config_of("electra-small", max_length=16, head="first_token")
    encoder = load_encoder("mini-sharebert", config, vocab_size=30)
    model = trainables.load_method("electra-small").build(config, encoder, TASKS["rte"]).eval()
    hidden = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(0))
    logits, _, _ = model.exit_heads(0, hidden[None, :, 0], None)
    torch.testing.assert_close(logits[0], model.classifier(torch.nn.functional.layer_norm(hidden[:, 0], (32,))))


# Folders.


def test_saved_model_is_loaded_by_its_folder_alone(tmp_path):
    model, batch = model_of(initializer_range=0.3), batch_of()
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is ShareBertModel
    assert torch.equal(loaded(**batch).pooler_output, model(**batch).pooler_output)


def test_encoder_of_a_pretrained_model_is_loaded_without_its_head(tmp_path):
    torch.manual_seed(0)
    whole = ShareBertForMaskedLM(ShareBertConfig(**SIZES, initializer_range=0.3)).eval()
    whole.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path), config_of("albert", max_length=12, hidden_dropout=0.0), vocab_size=200)
    weights = whole.sharebert.state_dict()
    assert encoder.pooler.bias.equal(weights["pooler.bias"])
    assert encoder.embeddings.word_embeddings.weight.equal(weights["embeddings.word_embeddings.weight"])
    assert encoder.layers[1].biases["key"].equal(weights["layers.1.biases.key"])
    again, batch = AutoModelForMaskedLM.from_pretrained(tmp_path), batch_of()
    assert torch.equal(again(**batch).logits, whole(**batch).logits)


ORIGINAL = {  # what the original code writes into config.json, besides the sizes
    "architectures": ["ShareBertLMHeadModel"],
    "attention_probs_dropout_prob": 0.1,
    "encoder_ln_mode": "pre-ln",
    "fused_linear_layer": True,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,  # its model uses 1e-5
    "layer_norm_type": "apex",
    "layernorm_embedding": False,
    "model_type": "bert",
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "sparse_mask_prediction": True,
    "transformers_version": "4.4.0",
    "useLN": True,
    "use_cache": True,
}
CASES = Path(__file__).parents[2] / "cases"


def write_original(folder, file="pytorch_model.bin", **changes):
    """The recorded case as a folder that the original code wrote, and the case."""
    case = json.loads((CASES / "sharebert_3_layers" / "case.json").read_text())
    weights = load_file(CASES / "sharebert_3_layers" / "weights.safetensors")
    weights = {f"bert.{name}": weight for name, weight in weights.items()}
    weights["cls.predictions.bias"] = torch.zeros(case["config"]["vocab_size"])
    if file == "pytorch_model.bin":
        torch.save(weights, folder / file)
    else:
        save_file(weights, folder / file, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**case["config"], **ORIGINAL, **changes}))
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"]))
    return str(folder), case


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("family", ["bert", "sharebert"])
@torch.no_grad()
def test_a_folder_of_the_original_code_gives_the_recorded_numbers(family, file, tmp_path):
    epsilon = {} if family == "bert" else {"layer_norm_eps": 1e-5}
    folder, case = write_original(tmp_path, file, model_type=family, **epsilon)
    check_backbone(folder)
    assert find_family(folder) == "sharebert" and not has_new_pooler(folder)
    assert len(load_tokenizer(folder, texts=list)) == 7
    encoder = load_encoder(folder, config_of("albert", max_length=32), vocab_size=7).eval()
    batch = {name: torch.tensor(values) for name, values in case["batch"].items()}
    *_, states = walk(encoder, **batch)
    hidden = encoder.final_norm(padded(states))[:, : len(case["expected"]["last_hidden"][0])]
    torch.testing.assert_close(hidden, torch.tensor(case["expected"]["last_hidden"]), rtol=0, atol=1e-5)
    pooled = encoder.pool(states.first())
    torch.testing.assert_close(pooled, torch.tensor(case["expected"]["pooled"]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder_ln_mode": "post-ln"},
        {"layernorm_embedding": True},
        {"layer_norm_type": "rms_norm"},
        {"num_hidden_layers": 4},
        {"factor_size": 8},
    ],
    ids=str,
)
def test_misfit_folder_of_original_code_is_refused(changes, tmp_path, snapshot):
    folder, _ = write_original(tmp_path, **changes)
    with pytest.raises(ValueError) as raised:
        check_backbone(folder)
    assert one_line(raised.value, tmp_path) == snapshot


def test_loss_of_masked_words_is_of_the_labelled_tokens():
    model, batch = ShareBertForMaskedLM(ShareBertConfig(**SIZES)).eval(), batch_of()
    labels = torch.full((3, 9), -100)
    labels[0, 2], labels[1, 3] = 17, 5
    output = model(**batch, labels=labels)
    losses = -output.logits.log_softmax(-1)
    torch.testing.assert_close(output.loss, (losses[0, 2, 17] + losses[1, 3, 5]) / 2)
