"""What is published is made of the archives alone, and new runs come in by one command."""

import csv
import re

import pytest
import yaml
from record_factory import add_config, add_document_scores, add_history, failed, make_record, store

from gpam.errors import UsageError
from gpam_suite.common.files import write_files
from gpam_suite.common.places import PUBLISHED, ROOT
from gpam_suite.evaluate.kneser_ney import reference_file
from gpam_suite.records import archives
from gpam_suite.records import store as kept
from gpam_suite.records.folder import read_records, write_record
from gpam_suite.records.lines import append_history, read_history
from gpam_suite.records.metrics import METRICS
from gpam_suite.report.publish import PART, pages_of, publish, remake, stale
from gpam_suite.report.run_columns import curve_rows, run_rows
from gpam_suite.stats.aggregate import aggregate

TITLES = {"trained": {}, "early training": {"small_lm": "A small language model"}}


@pytest.fixture
def published(tmp_path):
    """A folder of published results without any yet, and two of its pages."""
    results = tmp_path / "results"
    results.mkdir()
    (results / "experiments.yaml").write_text(yaml.safe_dump(TITLES))
    for page in ("README.md", "results/README.md"):
        (tmp_path / page).write_text("By hand.\n<!-- table: early-scores -->\n<!-- end -->\n")
    return results


def runs(results, *seeds):
    made = [make_record(model=m, seed=k, value=30.0 + k) for m in ("softmax", "dagpam") for k in seeds]
    for record in store(results, *made):
        add_history(record, record.headline)
        append_history(record.folder, {"update": 1, "split": "gradient", "query/a": 1.23456})
        add_document_scores(record)
        (record.folder / "hypotheses.txt").write_text("left out\n")


def rows(path):
    return list(csv.DictReader(path.open(encoding="utf-8")))


def test_runs_come_in_and_more_of_them_later(published, tmp_path):
    runs(tmp_path / "local", 1)
    (archive,) = publish(tmp_path / "local", published)
    assert archive == published / "runs" / "small_lm.tar.xz"
    names = {name.rpartition("/")[2] for name in archives.unpack(archive)}
    assert names == {"record.json", "config.yaml", "scores.jsonl", "metrics.jsonl"}
    histories = [read_history(record.folder) for record in read_records(published)]
    assert [{row["split"] for row in own} for own in histories] == [{"valid", "gradient"}] * 2
    assert all(own[-1] == {"update": 1, "split": "gradient", "query/a": 1.23} for own in histories)
    runs(tmp_path / "later", 2, 3)
    publish(tmp_path / "later", published)
    assert [(r["model"], r["seed"]) for r in read_records(published)] == [
        (model, seed) for model in ("dagpam", "softmax") for seed in (1, 2, 3)
    ]
    assert publish(tmp_path / "later", published) == []  # nothing new
    write_files(remake(published, tmp_path))
    table = rows(published / "runs.csv")
    assert [float(row["test_perplexity"]) for row in table] == [31.0, 32.0, 33.0] * 2
    assert len(rows(published / "curves.csv")) == 6 * 10
    whole = {f"small_lm/{name}": content for name, content in archives.unpack(archive).items()}
    archive.rename(published / "before")  # in one archive of several experiments, as the early ones
    archives.archive_of(published / "runs").write_bytes(archives.pack(whole))
    assert publish(published, published) == []
    assert "| A small language model | perplexity per word |" in (tmp_path / "README.md").read_text()
    assert yaml.safe_load((published / "configurations.yaml").read_text())["small_lm"]["model"]["name"] == "softmax"


def test_runs_that_make_no_table_with_the_published_ones_are_refused_and_nothing_is_written(published, tmp_path):
    runs(tmp_path / "local", 1)
    (archive,) = publish(tmp_path / "local", published)
    before = archive.read_bytes()
    for record in store(tmp_path / "later", make_record(experiment="small_lm", seed=2)):
        add_config(record, gpu__fast=True)
    with pytest.raises(UsageError, match=r"gpu\.fast is null in .* but true in .*an experiment name of its own"):
        publish(tmp_path / "later", published)
    assert archive.read_bytes() == before


def test_a_broken_analysis_is_refused_and_nothing_is_written(published, tmp_path):
    runs(tmp_path / "local", 1)
    analysis = kept.path_of_run(tmp_path / "local", read_records(tmp_path / "local")[0])
    analysis.parent.mkdir(parents=True)
    analysis.write_text("{")
    with pytest.raises(UsageError, match="is not as it was written"):
        publish(tmp_path / "local", published)
    assert not (published / "runs").exists()


def test_a_search_comes_in_as_runs_do(published, tmp_path):
    def searched(folder, **changes):
        local = tmp_path / folder
        for record in store(local / "tuning", make_record(experiment="tune_some", value=30.0) | changes):
            add_config(record, fairseq__model__dropout=0.1)
            add_history(record, 30.0)
        (local / "tuning" / "runs").mkdir(parents=True, exist_ok=True)
        return local

    (archive,) = publish(searched("first"), published)
    before = archive.read_bytes()
    failing = failed(make_record(experiment="tune_some"), "failed", "no memory")
    assert publish(searched("failing", **failing), published) == []  # a finished one stays
    with pytest.raises(UsageError, match=r"is a second run of Softmax at .*: wanted one; remove one of them"):
        publish(searched("twice", seed=2), published)
    (record_file,) = searched("broken").rglob("record.json")
    record_file.write_text("{")
    with pytest.raises(UsageError, match="is cut off, was changed"):
        publish(tmp_path / "broken", published)
    counted = tmp_path / "first" / "references" / "some.json"
    counted.parent.mkdir()
    counted.write_text("{")
    with pytest.raises(UsageError, match="is not as it was written"):
        publish(tmp_path / "first", published)
    assert archive.read_bytes() == before


def test_a_claim_that_has_its_runs_is_the_main_tables(published, tmp_path):
    """softmax at 100, daGPAM 2 % better in each of the plan's seeds; no reference row says whether they are trained."""
    (published / "experiments.yaml").write_text(yaml.safe_dump({"trained": {"lm_ptb": "Penn"}, "early training": {}}))
    asked = "<!-- table: verdicts -->\n<!-- end -->\n<!-- table: claim-lm_ptb -->\n<!-- end -->\n"
    (tmp_path / "README.md").write_text(asked)
    parts = generated(remake(published, tmp_path)[tmp_path / "README.md"])
    assert "(+1.74 %): no runs yet;" in parts
    assert "No seed of softmax and the model is finished yet." in parts
    for model, value in (("softmax", 100.0), ("dagpam_trainable", 98.0)):
        seeds = [make_record(experiment="lm_ptb", model=model, seed=k, value=value + 0.01 * k * k) for k in range(1, 8)]
        store(tmp_path / "local", *seeds)
    counted = reference_file(tmp_path / "local", seeds[0]["data"], {}, 5)
    counted.parent.mkdir()
    kept.write(counted, {"test_perplexity": 150.0})
    publish(tmp_path / "local", published)
    parts = generated(remake(published, tmp_path)[tmp_path / "README.md"])
    row = next(line for line in parts.splitlines() if line.startswith("| Penn Treebank, 15 layers"))
    assert "108.26 → 106.38 (+1.74 %) | 100.20 → 98.20 | +2.00 % [" in row
    assert row.endswith(", 7 seeds | none: not known whether trained | not known yet |")
    assert "Softmax 100.20 against 5-gram 150.00" in parts


def test_a_claim_that_lost_one_of_three_seeds_is_drawn_of_the_others(published, tmp_path):
    name = "wikitext2_trained"
    (published / "experiments.yaml").write_text(yaml.safe_dump({"trained": {name: "WikiText-2"}, "early training": {}}))
    (tmp_path / "README.md").write_text(f"<!-- figure: curves-{name} -->\n<!-- end -->\n")
    models = ("softmax", "dagpam_trainable")
    made = [make_record(experiment=name, model=model, seed=seed) for model in models for seed in (1, 2, 3)]
    for record in store(tmp_path / "local", *made[:-1], failed(made[-1])):
        add_history(record, 30.0)
    publish(tmp_path / "local", published)
    files = remake(published, tmp_path)
    assert published / "figures" / f"curves-{name}.svg" in files


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("record.json", '"test_perplexity": 31.0', '"test_perplexity": 21.0', "its checksum is not the one"),
        ("config.yaml", "max_update: 200", "max_update: 400", "config.yaml was changed"),
        ("scores.jsonl", '"words": 1', '"words": 2', "scores.jsonl gives"),
    ],
)
def test_a_run_that_was_changed_is_neither_published_nor_shown(published, tmp_path, name, old, new, sentence):
    runs(tmp_path / "local", 1)
    (archive,) = publish(tmp_path / "local", published)
    whole = archives.unpack(archive)
    path = tmp_path / "local" / "runs" / next(f"small_lm/{member}" for member in sorted(whole) if member.endswith(name))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=sentence):
        publish(tmp_path / "local", published)
    assert archives.unpack(archive) == whole
    member = path.relative_to(tmp_path / "local" / "runs" / "small_lm").as_posix()
    archive.write_bytes(archives.pack({**whole, member: path.read_bytes()}))
    with pytest.raises(UsageError, match=sentence):
        remake(published, tmp_path)


def test_an_experiment_without_a_title_is_refused(published, tmp_path):
    store(tmp_path / "local", make_record(experiment="new"))
    with pytest.raises(UsageError, match=r"experiments\.yaml has no title for new"):
        publish(tmp_path / "local", published)
    assert not (published / "runs").exists()


def test_a_page_that_asks_for_a_table_that_is_not_there_is_refused(published, tmp_path):
    (tmp_path / "README.md").write_text("<!-- table: verdict -->\n<!-- end -->\n")
    with pytest.raises(UsageError, match="did you mean 'verdicts'"):
        remake(published, tmp_path)


_CODE = re.compile(r"```.*?```|`[^`]*`|^ {4}[^\n]*", re.DOTALL | re.MULTILINE)
_TARGET = re.compile(r"\]\([^)]*\)|https?://\S+|arXiv \S+|<!--.*?-->", re.DOTALL)


def generated(text):
    """What stands between the markers."""
    return "\n".join(match[0].removeprefix(match[1]) for match in PART.finditer(text))


def by_hand(text):
    """What a person wrote: the text without generated parts, code, and the targets of links."""
    return _TARGET.sub(" ", _CODE.sub(" ", PART.sub(" ", text)))


def numbers(text):
    """As they are written; those that are part of a word (F1, Multi30k, WikiText-103) are none."""
    return re.findall(r"(?<![\w.])(?<!\w-)\d[\d,]*(?:\.\d+)?(?![\w])", text)


def test_numbers_of_a_text():
    text = "1,600 runs, 63 times; `7` [a 5](b8.md) v2 F1 WikiText-103 arXiv 2410.15578 -0.5.\n"
    text += "<!-- table: a -->\n9\n<!-- end -->\n3 %"
    assert numbers(by_hand(text)) == ["1,600", "63", "5", "0.5", "3"]
    assert numbers(generated(text)) == ["9"]


# ---------------------------------------------------------------------------------------------------- what is published


@pytest.fixture(scope="module")
def made():
    return {path: content.encode() if isinstance(content, str) else content for path, content in remake().items()}


def test_everything_published_is_what_the_archives_give(made):
    """Byte for byte: runs.csv, curves.csv, comparisons.csv, figures, and the tables within the pages."""
    old = [path.relative_to(ROOT).as_posix() for path, content in made.items() if path.read_bytes() != content]
    assert old == [], "make publish RESULTS=results"
    assert stale(made) == []
    drawn = {path.name for path in made if path.suffix == ".svg"}
    assert {path.name for path in (PUBLISHED / "figures").iterdir()} == drawn


@pytest.mark.parametrize("page", pages_of(ROOT), ids=lambda page: page.name)
def test_every_number_in_a_sentence_stands_in_a_table_of_the_page(page):
    """Ones that a person typed cannot go stale unseen. In code and in names they are no statements."""
    text = page.read_text(encoding="utf-8")
    known = set(numbers(generated(text)))
    assert [number for number in numbers(by_hand(text)) if number not in known] == []


def test_pages_call_experiments_by_what_people_call_them():
    titles = yaml.safe_load((PUBLISHED / "experiments.yaml").read_text())
    names = [name for own in titles.values() for name in own]
    for page in pages_of(ROOT):
        no_prose = r"```.*?```|<!--.*?-->|!\[.*?\]\(.*?\)"  # code, markers and figures
        prose = re.sub(no_prose, "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert [one for one in names if re.search(rf"\b{one}\b", prose)] == []


def test_every_metric_of_a_record_has_its_column():
    found = {metric for record in read_records(PUBLISHED) for metric in record["metrics"]}
    assert found <= METRICS.keys()
    head = rows(PUBLISHED / "runs.csv")[0].keys()
    told = re.findall(r"^\| `([\w ]+)` \|", (PUBLISHED / "columns.md").read_text(), re.MULTILINE)
    told = set(" ".join(told).split())
    assert found <= head <= told
    own_name = {f"{metric}_{what}" for metric in METRICS for what in ("mean", "sd")}
    assert rows(PUBLISHED / "comparisons.csv")[0].keys() <= told | own_name


def test_a_published_number_is_that_of_its_record_to_the_last_digit():
    lines = rows(PUBLISHED / "runs.csv")
    by_hash = {(row["experiment"], row["config_hash"]): row for row in lines}
    records = read_records(PUBLISHED)
    assert len(by_hash) == len(records)
    seeds = {(row["experiment"], row["model"], row["options"], row["seed"]) for row in lines}
    assert len(seeds) == len(records), "rows of one model and options are its seeds"
    for record in records:
        row = by_hash[record["experiment"], record["config_hash"]]
        for metric, value in record["metrics"].items():
            assert (float(row[metric]) if row[metric] else None) == value


def test_one_number_of_both_lambdas_stands_in_both_columns(tmp_path):
    learned = {"options": {"lambdas": "trainable_equal"}, "learned_scalars": {"lambda_pos/a": 0.3}}
    (row,) = run_rows([aggregate(store(tmp_path, make_record(model="dagpam", **learned)))], {})
    assert row["lambda_pos"] == row["lambda_neg"] == 0.3


def test_of_two_validations_of_an_update_the_later_counts(tmp_path):
    records = (record,) = store(tmp_path, make_record())
    for perplexity in (9.0, 8.0):
        append_history(record.folder, {"update": 10, "split": "valid", "token_perplexity": perplexity})
    assert [row["token_perplexity"] for row in curve_rows([aggregate(records)])] == [8.0]


def test_a_run_that_was_trained_again_replaces_the_old_one(published, tmp_path):
    runs(tmp_path / "local", 1)
    publish(tmp_path / "local", published)
    for record in read_records(tmp_path / "local"):
        write_record(record.folder, {**record.data, "finished": "2026-02-02T03:05:05+00:00"})
    publish(tmp_path / "local", published)
    assert {record["finished"] for record in read_records(published)} == {"2026-02-02T03:05:05+00:00"}
    for record in read_records(tmp_path / "local"):  # and again, which fails
        write_record(record.folder, {**record.data, "status": "failed", "reason": "killed"})
    publish(tmp_path / "local", published)
    assert {record["finished"] for record in read_records(published)} == {"2026-02-02T03:05:05+00:00"}
    assert {record["status"] for record in read_records(published)} == {"finished"}


def test_the_tests_of_a_claim_that_is_gone_are_stale(published, tmp_path):
    old = published / "comparisons" / "old.json"
    old.parent.mkdir()
    old.touch()
    assert stale(remake(published, tmp_path), published) == [old]
