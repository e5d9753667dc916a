"""A trained run as a folder that can be given away: parameters, configuration, dictionary, segmentation, card."""

import shutil
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from safetensors.torch import save_model

from gpam.errors import UsageError
from gpam_suite.common import strict_json
from gpam_suite.common.files import file_sha256, write_atomically, write_files
from gpam_suite.common.formatting import count, number
from gpam_suite.common.markup import inert, markdown
from gpam_suite.common.tasks import NMT, RECALL
from gpam_suite.data import Prepared
from gpam_suite.data.binarise import dictionary_name
from gpam_suite.data.text.segmentation import BPE_FILES
from gpam_suite.evaluate.trained import open_trained
from gpam_suite.records.environment import commit
from gpam_suite.records.folder import Record
from gpam_suite.tools.pretrained import CONFIG, FORMAT, WEIGHTS

CARD = "README.md"


def export(cfg: DictConfig) -> None:
    """Write the model of the finished run ``cfg.run`` into the new folder ``cfg.output``.

    Raises:
        UsageError: no such run or one without a result, a model that reads no text, or a folder that is not empty.
    """
    if cfg.run is None or cfg.output is None:
        raise UsageError("run and output are wanted: python scripts/export.py run=RUN_FOLDER output=NEW_FOLDER")
    folder, output = Path(cfg.run), Path(cfg.output)
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UsageError(f"output: {output} is not an empty folder; choose another")
    run = open_trained(folder, cfg.paths, cpu=True)
    if run.record["status"] != "finished":
        raise UsageError(
            f"run: {folder} {run.record['status']} ({run.record['reason']}); only a finished run is exported"
        )
    if run.cfg.dataset.task == RECALL.name:
        raise UsageError(f"run: {folder} is of a generated task ({run.cfg.dataset.name}), whose model reads no text")
    prepared, model = run.prepared, run.model()
    sections = {name: OmegaConf.to_container(run.complete[name]) for name in ("task", "model")}
    sections["task"]["data"] = None  # a place on this machine
    if prepared.task == NMT.name:
        languages = [prepared.source_lang, prepared.target_lang]
        dictionaries = list(map(dictionary_name, languages))
    else:
        languages, dictionaries = [prepared.manifest["language"]], [dictionary_name()]
    files = {name: (prepared.bin / name).read_bytes() for name in dictionaries}
    if name := BPE_FILES.get(prepared.manifest["preprocessing"]["bpe"]):
        files[name] = (prepared.folder / "bpe" / name).read_bytes()
    write_files(
        {output / name: content for name, content in files.items()} | {output / CARD: card(run.record, prepared)}
    )
    save_model(model, str(output / WEIGHTS), metadata={"format": "pt"})
    shutil.copymode(output / CARD, output / WEIGHTS)  # it is written for its owner alone
    config = {
        "format": FORMAT,
        "task": prepared.task,
        "unit": prepared.unit,
        "languages": languages,
        "preprocessing": prepared.manifest["preprocessing"],
        "evaluation": OmegaConf.to_container(run.cfg.evaluation, resolve=True),
        "dictionaries": dictionaries,
        "fairseq": sections,
        "files": {name: file_sha256(output / name) for name in (*files, WEIGHTS)},
    }
    write_atomically(output / CONFIG, strict_json.summed(config, indent=1))  # last: complete with it
    print(output)


def card(record: Record, prepared: Prepared) -> str:
    """The card of a model in Markdown, from its run's record and the manifest of its data."""
    manifest = prepared.manifest
    what, call = f"language model by {prepared.unit}", 'model.perplexity("...")'
    if record["task"] == NMT.name:
        what, call = f"translation, {prepared.source_lang} to {prepared.target_lang}", 'model.translate("...")'
    options = ", ".join(f"{key} {value}" for key, value in record["options"].items()) or "none"
    rows = [
        ("Task", what),
        ("Attention", f"{record['model_label']} (options: {options})"),
        ("Parameters", count(record["parameters"]["total"])),
        ("Recipe", f"{record['recipe']}, {count(record['updates'])} updates, seed {record['seed']}"),
        ("Data", f"{record['dataset_label']}, checksum {record['data']['checksum']}"),
        ("Licence of the data", manifest.get("licence") or "not known"),
        ("Citation of the data", manifest.get("citation") or "not known"),
        ("Protocol", ", ".join(f"{key} {value}" for key, value in record["protocol"].items())),
        ("Made by", f"gpam-suite, commit {commit(record['git'])}, configuration {record['config_hash']}"),
    ]
    metrics = [[name, number(value, 3)] for name, value in record["metrics"].items()]
    return "\n".join(
        [
            f"# {inert(record['model_label'])}, {inert(record['dataset_label'])}",
            "",
            markdown(["Fact", "What"], rows),
            "One seed of one small training: what it shows about the attention is in the table of the experiment "
            f"`{record['experiment']}`, over seeds, not here.",
            "",
            markdown(["Metric", "Value"], metrics),
            "```python",
            "from gpam_suite.tools.pretrained import load",
            "",
            'model = load("this folder")',
            f"print({call})",
            "```",
            "",
        ]
    )
