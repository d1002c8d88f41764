"""The licences of GLUE's tasks and of backbones on the hub, each read at its source on 2026-11-25 but those noted."""

from __future__ import annotations

UNKNOWN = "unknown"
OF_TASKS = {
    "sst2": UNKNOWN,  # so the card of stanfordnlp/sst2 on the hub
    "rte": UNKNOWN,  # of four challenges, each with terms of its own; their pages name no licence
    "qnli": "CC BY-SA 4.0",  # SQuAD 1.1: the card of rajpurkar/squad
    "cola": UNKNOWN,  # the authors' copyright; nyu-mll.github.io/CoLA expects research to be fair use
    "mrpc": "Microsoft's terms",  # LICENSE.txt of STS-B, which holds parts of it; the terms themselves: not verified
    "mnli": "OANC; CC BY 3.0, CC BY-SA 3.0",  # arXiv:1704.05426; the latter of some fiction
    "qqp": "Quora's terms",  # non-commercial, says a book that cites quora.com/about/tos; not verified
    "stsb": "scores CC BY-SA 4.0, texts by source",  # its LICENSE.txt
    "wnli": "CC BY 4.0",  # Winograd Schema Challenge: cs.nyu.edu/davise/papers/WinogradSchemas/WS.html
}
_OF_BACKBONES = {  # beginning of the name on the hub -> licence on its page
    "albert/": "apache-2.0",
    "google-bert/": "apache-2.0",  # not verified
    "google/electra": "apache-2.0",
    "FacebookAI/roberta": "mit",
    "sentence-transformers/all-MiniLM": "apache-2.0",
}


def licence_of_backbone(name: str) -> str:
    """Look up the licence of a backbone by its name on the hub; that of a folder is unknown."""
    return next((licence for start, licence in _OF_BACKBONES.items() if name.startswith(start)), UNKNOWN)
