"""The queue of the plans: every command line composes, the pages name every part, and it goes on where it stopped."""

import itertools
import re
import signal
import subprocess
import sys
from functools import cache

import pytest
from omegaconf import OmegaConf
from record_factory import failed, make_record
from runs import LIMIT, TINY_LM, call, places, until, write_text

from gpam.errors import UsageError
from gpam_suite.common.places import CONFIGS, ROOT
from gpam_suite.config.compose import check, composed, folder_of, overrides_label
from gpam_suite.records.folder import write_record
from gpam_suite.records.lines import append_history
from gpam_suite.records.settings import names_a_row, table_settings
from gpam_suite.run import evidence
from gpam_suite.run.outcomes import RunFailed
from gpam_suite.stats.aggregate import changed_options
from gpam_suite.stats.claim import read_claims, secondary_of
from gpam_suite.stats.rows import BASELINE

CONFIG = OmegaConf.load(CONFIGS / "evidence.yaml")
PLAN = evidence.unresolved(CONFIG)
PAGES = list((ROOT / "docs" / "experiments").glob("*.md"))


@pytest.mark.parametrize("part", PLAN)
def test_every_part_of_the_plan_composes(part):
    """Of each multirun the first run and the last one, which has another value of each option."""
    names, folders, runs = set(), set(), []
    for line in PLAN[part]["multiruns"]:
        members = evidence.overrides_of(line)
        folders_before = len(folders)
        for overrides in {tuple(members[0]), tuple(members[-1])}:
            cfg = composed(*overrides)
            check(cfg)
            names.add(cfg.experiment_name)
            folders.add(folder_of(cfg))
        assert len(folders) - folders_before == min(len(members), 2)
        runs += map(tuple, members)
    assert len(set(runs)) == len(runs)
    rows = [line.split("|") for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    (count,) = (row[-3] for row in rows if len(row) > 5 and f"`{part}`" in row[1])
    assert len(runs) == int(count)
    assert all(name.startswith("tune_") for name in names) == (PLAN[part].get("folder") == "tuning")


@cache
def options_of_a_model(*words):
    """The options that tables name it by, which its own words decide."""
    return changed_options(overrides_label(composed(*words)))


def arms_of_the_plan():
    """Experiment and arm, as tables name it, to its seeds."""
    trained: dict[tuple[str, str], set[int]] = {}
    lines = [line for part in PLAN.values() for line in part["multiruns"]]
    for words in itertools.chain.from_iterable(map(evidence.overrides_of, lines)):
        given = dict(word.removeprefix("++").split("=", 1) for word in words)
        own = [word for word in words if word.startswith("model")]
        options = [*options_of_a_model(*own)] if len(own) > 1 else []
        if "experiment_name" not in given:  # in an experiment of its own a length is the usual one
            options += [f"max_update={given[key]}" for key in {"fairseq.optimization.max_update"}.intersection(given)]
        arm = f"{given['model']} ({','.join(options)})" if options else given["model"]
        experiment = given.get("experiment_name", given.get("experiment", ""))
        trained.setdefault((experiment, arm), set()).add(int(given["seed"]))
    return trained


def test_a_claims_arms_and_seeds_are_those_that_are_trained():
    """No name in ``configs/claims.yaml`` is misspelt or missing: an arm that is not there would be left out unsaid."""
    trained = arms_of_the_plan()
    for claim in read_claims().values():
        also = claim.extension["also"] if claim.extension else []
        assert set(also) <= set(claim.controls) and all(map(claim.is_planned, itertools.chain(*claim.pairs)))
        arms = {BASELINE, claim.model, *claim.controls, *claim.arms}
        assert arms == {arm for experiment, arm in trained if experiment == claim.experiment}, claim.experiment
        for arm in arms:
            assert trained[claim.experiment, arm] == set(range(1, claim.seeds_for(arm) + 1)), (claim.experiment, arm)


def test_every_secondary_comparison_of_a_plan_is_counted():
    """Each arm with softmax, the model with each control, and pairs; of a part of a claim its first one too."""
    multi30k, wikitext2, iwslt14 = 2 * 2 + 4 + 2, 2, 2 + 1
    families = {claim.family for claim in read_claims().values()}
    counts = {family: secondary_of(family) for family in families}
    assert counts == {"lm_ptb": 2 * 12 + 15 + 8 + 3, "translation": multi30k + wikitext2 + iwslt14}


@pytest.mark.parametrize("part", ["ptb_longer", "ptb_longer_dagpam", "multi30k_longer"])
def test_a_longer_training_is_named_after_its_updates_alone(part):
    """So that its row is the arm that ``configs/claims.yaml`` names."""
    words, *_ = evidence.overrides_of(PLAN[part]["multiruns"][0])
    as_usual = [word for word in words if "max_update" not in word]
    longer, usual = (table_settings(OmegaConf.to_container(composed(*own), resolve=True)) for own in (words, as_usual))
    changed = {key for key in longer | usual if longer.get(key) != usual.get(key) and names_a_row(key)}
    assert changed == {"fairseq.optimization.max_update"}


@pytest.mark.parametrize(
    "lstm, transformer",
    [
        ("experiment=lm_ptb recipe=ptb_lstm", "experiment=lm_ptb"),
        ("experiment=multi30k_de_en recipe=multi30k_lstm", "experiment=multi30k_de_en"),
        ("dataset=wikitext2 recipe=wikitext2_lstm", "dataset=wikitext2 recipe=trained_lm"),
        ("dataset=iwslt14_partial_en_de recipe=iwslt14_lstm", "dataset=iwslt14_partial_en_de"),
    ],
)
def test_a_reference_network_trains_as_long_as_softmax_on_the_same_batches(lstm, transformer):
    one, two = composed(*lstm.split(), "model=lstm"), composed(*transformer.split(), "model=softmax")
    assert one.preprocessing == two.preprocessing and one.evaluation == two.evaluation
    for group, keys in {
        "optimization": ("max_update", "update_freq"),
        "dataset": ("max_tokens", "validate_interval_updates"),
        "checkpoint": ("save_interval_updates",),
    }.items():
        assert [one.fairseq[group][key] for key in keys] == [two.fairseq[group][key] for key in keys]


def test_the_last_option_varies_fastest_and_interpolations_are_left_alone():
    line = "seed=1,2 model=a,b experiment_name=x${fairseq.model.dropout} fairseq.optimization.lr=[0.1],[0.2]"
    found = [" ".join(words) for words in evidence.overrides_of(line)]
    assert len(found) == 8
    assert found[0] == "seed=1 model=a experiment_name=x${fairseq.model.dropout} ++fairseq.optimization.lr=[0.1]"
    assert [words.split()[-1][-5:] for words in found[:2]] == ["[0.1]", "[0.2]"]
    assert [words.split()[1] for words in found[:4]] == ["model=a"] * 2 + ["model=b"] * 2


def config(folder, **changes):
    places = {"results": f"{folder}/results", "data": f"{folder}/data", "mirror": None, "offline": True, "workers": 1}
    return OmegaConf.merge(CONFIG, {"paths": places, **changes})


def called(monkeypatch, end):
    """Processes are not started; ``end(script, words)`` gives the exit code of each. Returns their command lines."""
    calls = []

    class Process:
        def __init__(self, command, **_):
            self.script, self.words = command[1].rpartition("/")[2], command[2:]
            calls.append([self.script, *self.words])
            self.returncode = None

        def poll(self):
            return self.wait()

        def wait(self):
            self.returncode = end(self.script, self.words) if self.returncode is None else self.returncode
            return self.returncode

        def terminate(self):
            pass

    monkeypatch.setattr(evidence.subprocess, "Popen", Process)
    monkeypatch.setattr(evidence, "_LOOK_EVERY", 0.0)
    return calls


def plan(**parts):
    """A plan of small parts over runs that are never started."""
    line = "experiment=lm_laptop model=softmax seed={}"
    return {name: {"multiruns": [line.format(seeds)], "folder": "tuning"} for name, seeds in parts.items()}


def test_parts_are_one_queue_and_are_looked_into_at_the_end(monkeypatch, tmp_path):
    calls = called(monkeypatch, lambda *_: 0)
    parts = plan(tuned="1,2", shown="3")
    del parts["shown"]["folder"]
    evidence.evidence(config(tmp_path, plan=parts, parts=["tuned", "shown", "tuned"], jobs=2))
    assert [call[0] for call in calls] == ["train.py"] * 3 + ["analyse.py"]  # tuning is not looked into
    assert f"paths.results='{tmp_path}/results/tuning'" in calls[0]
    assert f"paths.results='{tmp_path}/results'" in calls[2] and f"results={tmp_path}/results" in calls[-1]
    asked = {f"paths.data='{tmp_path}/data'", "paths.offline=True"}
    assert all(asked <= set(call) for call in calls[:-1])  # as it was asked
    assert {f"paths.data={tmp_path}/data", "paths.offline=True"} <= set(calls[-1])


def test_an_analysis_that_fails_is_told_when_all_runs_have_ended(tmp_path, monkeypatch):
    parts = plan(shown="3")
    del parts["shown"]["folder"]
    calls = called(monkeypatch, lambda script, _: int(script == "analyse.py"))
    with pytest.raises(RunFailed, match="all runs have a result, but looking into them failed"):
        evidence.evidence(config(tmp_path, plan=parts, parts=["shown"]))
    assert [call[0] for call in calls] == ["train.py", "analyse.py"]


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"parts": []}, "parts: got none, wanted some of tune_ptb, "),
        ({"parts": ["tune_pt"]}, "wanted one of tune_ptb, .*; did you mean 'tune_ptb'"),
        ({"jobs": 0}, "jobs: got 0"),
        ({"plan": {"some": {"multiruns": None}}}, r"plan\.some\.multiruns: got None, wanted a list"),
        ({"parts": ["ptb", "ptb_wide"]}, "ptb_wide waits for what tune_ptb_wide finds"),
    ],
)
def test_mistakes_are_told(monkeypatch, tmp_path, changes, sentence):
    calls = called(monkeypatch, lambda *_: 0)
    with pytest.raises(UsageError, match=sentence):
        evidence.evidence(config(tmp_path, **changes))
    assert not calls


def test_what_is_done_is_passed_over_and_the_file_says_so(monkeypatch, tmp_path):
    cfg = config(tmp_path, plan=plan(some="1,2,3,4"), parts=["some"])
    one, two, three, four = evidence.members_of("some", cfg.plan.some, OmegaConf.to_container(cfg.paths))
    speed = {"train_tokens_per_second": 1.0, "train_seconds": 3500.0, "evaluate_seconds": 100.0}
    write_record(one.folder, make_record(speed=speed))
    write_record(two.folder, failed(make_record()))  # diverged: it would again
    append_history(three.folder, {"update": 40, "split": "train", "loss_bits": 9.0})
    seen = []

    def end(script, words):
        text = (tmp_path / "results" / "queue.txt").read_text()
        seen.append(text)
        folder = {"seed=3": three, "seed=4": four}[words[2]].folder
        write_record(folder, make_record(speed=speed))
        return 0

    calls = called(monkeypatch, end)
    evidence.evidence(cfg)
    assert [call[3] for call in calls] == ["seed=3", "seed=4"]
    head, _, *lines = seen[0].splitlines()
    said = "1 of 4 runs finished, 1 diverged, 1 running, 1 to do; about 2.0 h (60 min a run, 1 at a time)"
    assert head.endswith(f"UTC: {said}")
    assert [line.split()[0] for line in lines] == ["finished", "diverged", "running", "to"]
    assert lines[2].endswith(", update 40 of 600")
    assert "3 of 4 runs finished, 1 diverged\n" in (tmp_path / "results" / "queue.txt").read_text()
    evidence.evidence(cfg)
    assert len(calls) == 2
    # no score: who looks at the queue decides nothing by it
    assert not re.search(r"\d\.\d\d", seen[0].replace(head, ""))


def test_a_failed_member_does_not_end_the_queue(monkeypatch, tmp_path):
    cfg = config(tmp_path, plan=plan(some="1,2,3"), parts=["some"], jobs=2)
    calls = called(monkeypatch, lambda *_: 1)
    with pytest.raises(RunFailed, match="3 runs ended without a result"):
        evidence.evidence(cfg)
    assert len(calls) == 3
    for member in evidence.members_of("some", cfg.plan.some, OmegaConf.to_container(cfg.paths)):
        write_record(member.folder, failed(make_record(), "failed", "no memory"))
    told = []
    calls = called(monkeypatch, lambda *_: told.append((tmp_path / "results" / "queue.txt").read_text()) or 2)
    with pytest.raises(UsageError, match="refused: experiment=lm_laptop"):
        evidence.evidence(cfg)
    assert len(calls) == 2  # those that were under way
    assert "0 of 3 runs finished, 2 running, 1 to do" in told[0]  # one that failed is tried again


def test_terminated_it_saves_and_started_again_it_goes_on(tmp_path):
    """A real queue of one run, from a folder of its own at first: paths that are relative begin there."""
    text = write_text(tmp_path / "text")
    seldom = [f"fairseq.{key}_interval_updates=200" for key in ("dataset.validate", "checkpoint.save")]
    line = " ".join([*TINY_LM, f"dataset.folder={text}", "fairseq.optimization.max_update=400", *seldom])
    words = [f"+plan.some={{folder:tuning,multiruns:['{line}']}}", "parts=[some]"]
    command = [sys.executable, str(ROOT / "scripts" / "evidence.py"), *words]
    command += ["paths.results=results", "paths.data=data"]
    queue = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until(lambda: queue.poll() is not None or list((tmp_path / "results").rglob("metrics.jsonl")))
    queue.send_signal(signal.SIGTERM)
    said, _ = queue.communicate(timeout=LIMIT)
    assert queue.returncode == 128 + signal.SIGTERM, said
    state = tmp_path / "results" / "queue.txt"
    assert "0 of 1 runs finished, 1 to do" in state.read_text()
    update = int(re.search(r", update (\d+) of 400", state.read_text())[1])
    again = call("evidence.py", *words, *places(tmp_path))
    assert again.returncode == 0, again.stderr
    assert "1 of 1 runs finished\n" in state.read_text()
    said = [int(number) for number in re.findall(r"update (\d+)/400", again.stderr)]
    assert said[0] >= update > 0 and said[-1] == 400  # the first line may be of the rows that were saved
