"""The licences of GLUE's tasks and of backbones on the hub. Only the pages of CoLA and MNLI were read (2026-11-25)."""

from __future__ import annotations

UNKNOWN = "unknown"
OF_TASKS = {
    "sst2": UNKNOWN,  # Stanford Sentiment Treebank: sentences of film reviews
    "rte": UNKNOWN,  # of four challenges, each with terms of its own
    "qnli": "CC BY-SA 4.0",  # SQuAD 1.1
    "cola": UNKNOWN,  # the authors' copyright; nyu-mll.github.io/CoLA expects research to be fair use
    "mrpc": "Microsoft's terms",  # of its download page
    "mnli": "OANC; CC BY 3.0, CC BY-SA 3.0",  # arXiv:1704.05426; the latter of some fiction
    "qqp": "Quora's terms",  # non-commercial use
    "stsb": "mixed, by source",  # its LICENSE.txt
    "wnli": "CC BY 4.0",  # Winograd Schema Challenge
}
_OF_BACKBONES = {  # beginning of the name on the hub -> licence on its page
    "albert/": "apache-2.0",
    "google-bert/": "apache-2.0",
    "google/electra": "apache-2.0",
    "FacebookAI/roberta": "mit",
    "sentence-transformers/all-MiniLM": "apache-2.0",
}


def licence_of_backbone(name: str) -> str:
    """The licence of a backbone by its name on the hub; that of a folder is unknown."""
    return next((licence for start, licence in _OF_BACKBONES.items() if name.startswith(start)), UNKNOWN)
