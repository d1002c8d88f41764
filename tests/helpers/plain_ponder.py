"""PALBERT and PABEE written down a second time, as plainly as possible: one loop over layers, original parameter names.

Makes reference cases in the format of `helpers.reference_cases`, for settings without a recorded case. Facts:
tinkoff-ai/palbert at 52a79af, src/modeling/palbert_fast.py and src/loss.py.
"""

import json
import math

import torch
from safetensors.torch import save_file
from transformers import AlbertConfig, AlbertModel

NUM_LAYERS, HIDDEN = 5, 16
EPSILON, BETA, PRIOR_LAMBDA = 0.05, 0.5, 0.1


def write_case(folder, *, method, num_labels=3, arch="linear", num_lambda_layers=1, seed=0):
    """A case folder with random weights and what the plain loop makes of them."""
    torch.manual_seed(seed)
    config = {
        "vocab_size": 60,
        "embedding_size": 8,
        "hidden_size": HIDDEN,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 16,
        "num_labels": num_labels,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.5,
    }
    albert = AlbertModel(AlbertConfig(**config)).eval()
    batch = _batch(num_labels)
    heads = _heads(method, num_labels, arch, num_lambda_layers)
    pooled = _pooled(albert, batch)
    if method == "pabee":
        case = {"method": "pabee", "regression_threshold": 0.2}
        expected = _pabee(pooled, heads, batch["labels"], albert)
    else:
        case = {
            "method": "ponder",
            "lambda_layer_arch": arch,
            "num_lambda_layers": num_lambda_layers,
            "epsilon": EPSILON,
        }
        expected = _ponder(pooled, heads, batch["labels"], albert, arch)
    weights = {f"albert.{name}": tensor for name, tensor in albert.state_dict().items()}
    weights |= {f"classifiers.{name}": tensor.detach() for name, tensor in heads.state_dict().items()}
    save_file({name: tensor.clone() for name, tensor in weights.items()}, folder / "weights.safetensors")
    content = {
        "albert_config": config,
        "case": case,
        "batch": {name: values.tolist() for name, values in batch.items()},
        "expected": expected,
    }
    (folder / "case.json").write_text(json.dumps(content))
    return folder


def _batch(num_labels):
    mask = (torch.arange(10) < torch.tensor([[10], [7], [4], [10], [6], [3]])).long()
    return {
        "input_ids": torch.randint(1, 60, (6, 10)) * mask,
        "attention_mask": mask,
        "token_type_ids": (torch.arange(10) > 4).long() * mask,
        "labels": torch.rand(6) * 5 if num_labels == 1 else torch.randint(num_labels, (6,)),
    }


def _heads(method, num_labels, arch, num_lambda_layers):
    if method == "pabee":
        return torch.nn.ModuleList(torch.nn.Linear(HIDDEN, num_labels) for _ in range(NUM_LAYERS))
    width = 2 * HIDDEN if arch == "linear_cat" else HIDDEN
    exit_head = torch.nn.Module()
    exit_head.cls = torch.nn.Linear(width, 1)
    if arch == "rnn":
        exit_head.feature_extractor = torch.nn.RNN(width, width, num_lambda_layers, batch_first=True)
    elif num_lambda_layers > 1:
        layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(num_lambda_layers)]
        exit_head.feature_extractor = torch.nn.Sequential(*layers)
    return torch.nn.ModuleDict({"cls_head": torch.nn.Linear(HIDDEN, num_labels), "exit_head": exit_head})


def _pooled(albert, batch):
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    hidden_states = albert(**inputs, output_hidden_states=True).hidden_states[1:]
    return [torch.tanh(albert.pooler(hidden[:, 0])) for hidden in hidden_states]


def _exit_logits(pooled, exit_head, arch):
    if arch == "rnn":
        features, _ = exit_head.feature_extractor(torch.stack(pooled, dim=1))  # the layers are its time steps
        return [exit_head.cls(features[:, layer])[:, 0] for layer in range(len(pooled))]
    logits = []
    for now, before in zip(pooled, [torch.zeros_like(pooled[0]), *pooled[:-1]], strict=True):
        seen = {"linear": now, "linear_diff": now - before, "linear_cat": torch.cat([now, before], dim=1)}[arch]
        logits.append(exit_head.cls(getattr(exit_head, "feature_extractor", torch.nn.Identity())(seen))[:, 0])
    return logits


def _losses(logits, labels):
    if logits.shape[1] == 1:
        return (logits[:, 0] - labels) ** 2
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def _ponder(pooled, heads, labels, albert, arch):
    logits = [heads["cls_head"](layer) for layer in pooled]
    lambdas = [torch.sigmoid(layer) for layer in _exit_logits(pooled, heads["exit_head"], arch)]
    pdf, task_loss = [], 0.0
    remaining, cdf = torch.ones(len(labels)), torch.zeros(len(labels))
    for layer in range(NUM_LAYERS):
        probability = lambdas[layer] * remaining
        remaining = remaining * (1 - lambdas[layer])
        probability = torch.where(cdf > 1 - EPSILON, EPSILON / NUM_LAYERS, probability)
        if not (cdf > 1 - EPSILON).all():  # a layer above every example's cut is not computed
            task_loss = task_loss + (probability * _losses(logits[layer], labels)).mean()
        cdf = cdf + probability
        pdf.append(probability)
    prior = [PRIOR_LAMBDA * (1 - PRIOR_LAMBDA) ** layer for layer in range(NUM_LAYERS - 1)]
    prior.append(1 - sum(prior))
    kl = sum((p * (math.log(p) - q.log())).mean() for p, q in zip(prior, pdf, strict=True))
    total = task_loss + BETA * kl
    total.backward()
    train = {
        "exit_pdf": [row.tolist() for row in pdf],
        "task_loss": task_loss.item(),
        "kl": kl.item(),
        "beta": BETA,
        "prior_lambda": PRIOR_LAMBDA,
        "total_loss": total.item(),
        "grad_norm_exit_head": _norm(heads["exit_head"].parameters()),
        "grad_norm_rest": _norm([*albert.parameters(), *heads["cls_head"].parameters()]),
    }
    return {"train": train, "eval": _ponder_exits(logits, lambdas)}


def _ponder_exits(logits, lambdas):
    results = {f"threshold@{q}": {"exit_layer": [], "logits": []} for q in (0.25, 0.5, 0.9)}
    results["expectation_legacy"] = {"exit_layer": [], "logits": []}
    for example in range(len(logits[0])):
        for name, result in results.items():
            cdf, remaining, expected = 0.0, 1.0, 0.0
            for layer in range(NUM_LAYERS):
                probability = lambdas[layer][example].item() * remaining
                remaining *= 1 - lambdas[layer][example].item()
                cdf += probability
                answer = logits[layer][example].detach()
                weight = 1 - probability if layer == NUM_LAYERS - 1 else probability
                expected = expected + weight * (answer if len(answer) == 1 else answer.softmax(0))
                if name != "expectation_legacy" and cdf > float(name.split("@")[1]):
                    break
            if name == "expectation_legacy":
                answer = expected if len(answer) == 1 else expected.log()
            result["exit_layer"].append(layer + 1)
            result["logits"].append(answer.tolist())
    return results


def _pabee(pooled, heads, labels, albert):
    logits = [head(layer) for head, layer in zip(heads, pooled, strict=True)]
    total = sum((layer + 1) * _losses(logits[layer], labels).mean() for layer in range(NUM_LAYERS))
    loss = total / sum(range(1, NUM_LAYERS + 1))
    loss.backward()
    train = {"loss": loss.item(), "grad_norm": _norm([*albert.parameters(), *heads.parameters()])}
    return {"train": train, "eval": {f"patience@{patience}": _patience(logits, patience) for patience in range(1, 5)}}


def _patience(logits, patience):
    layers, answers = [], []
    for example in range(len(logits[0])):
        counter, before = 0, None
        for layer in range(NUM_LAYERS):
            now = logits[layer][example].detach()
            if before is None:
                agrees = False
            else:
                agrees = (now - before).abs().item() < 0.2 if len(now) == 1 else now.argmax() == before.argmax()
            counter, before = counter + 1 if agrees else 0, now
            if counter == patience:
                break
        layers.append(layer + 1)
        answers.append(now.tolist())
    return {"exit_layer": layers, "logits": answers}


def _norm(parameters):
    return math.sqrt(sum(p.grad.double().square().sum().item() for p in parameters if p.grad is not None))
