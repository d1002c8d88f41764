"""Licences of GLUE's tasks and of backbones, read at their sources on 2026-11-25 unless a comment says otherwise."""

from __future__ import annotations

UNKNOWN = "unknown"
OF_TASKS = {
    "sst2": UNKNOWN,  # from the card of stanfordnlp/sst2 on the hub
    "rte": UNKNOWN,  # data of four challenges, each with its own terms; their pages name no licence
    "qnli": "CC BY-SA 4.0",  # SQuAD 1.1, from the card of rajpurkar/squad
    "cola": UNKNOWN,  # the authors hold the copyright; nyu-mll.github.io/CoLA expects research to be fair use
    "mrpc": "Microsoft's terms",  # from LICENSE.txt of STS-B, which contains parts of MRPC; the terms are not verified
    "mnli": "OANC; CC BY 3.0, CC BY-SA 3.0",  # arXiv:1704.05426; CC BY-SA 3.0 applies to some of the fiction
    "qqp": "Quora's terms",  # non-commercial according to a book that cites quora.com/about/tos; not verified
    "stsb": "CC BY-SA 4.0 for scores, various for texts",  # from its LICENSE.txt
    "wnli": "CC BY 4.0",  # Winograd Schema Challenge: cs.nyu.edu/davise/papers/WinogradSchemas/WS.html
}
_OF_BACKBONES = {  # start of the name on the hub -> licence on its page
    "albert/": "apache-2.0",
    "google-bert/": "apache-2.0",  # not verified
    "google/electra": "apache-2.0",
    "FacebookAI/roberta": "mit",
    "sentence-transformers/all-MiniLM": "apache-2.0",
}


def licence_of_backbone(name: str) -> str:
    """Look up the licence of a backbone by its name on the hub; return "unknown" for other names and for folders."""
    return next((licence for start, licence in _OF_BACKBONES.items() if name.startswith(start)), UNKNOWN)
