"""The work behind `make reproduce-ptb`: the row with its deciding controls, by docs/experiments/penn-treebank.md.

Only the standard library is imported here, so that a missing file is said before anything is installed.
"""

import argparse
import hashlib
import math
import os
import re
import sys
from pathlib import Path

from reproduce import ROOT, USAGE_ERROR, call, cores, wrong_jobs, wrong_results

EXPERIMENT, PART = "lm_ptb", "ptb"
PLAN = "docs/experiments/penn-treebank.md"
_SPLIT = re.compile(r"^  \w+: \{mirror: (\S+), .*checksums: \[md5:(\w{32})\]\}", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default="results/local", type=os.path.expanduser)
    parser.add_argument("--jobs", default="", help="runs side by side; default: one a core")
    parser.add_argument("--announce", action="store_true", help="say what would run and what it costs, and stop")
    parser.add_argument("overrides", nargs="*", help="paths.mirror=FOLDER and other paths; default: GPAM_MIRROR")
    given = parser.parse_args()
    jobs = given.jobs or str(cores())
    if complaint := wrong(jobs, given.overrides) or wrong_results(given.results):
        print(f"reproduce-ptb: {complaint}", file=sys.stderr)
        return USAGE_ERROR
    if given.announce:
        print(announcement(jobs, given.results))
        return 0
    paths = [f"paths.results={given.results}", *given.overrides]
    codes = [call("evidence.py", f"parts=[{PART}]", f"jobs={jobs}", *paths)]
    if codes[0] in (0, 1):  # runs that were lost are rows of the table
        codes += [call("ngram.py", f"experiment={EXPERIMENT}", *paths), call("tabulate.py", given.results)]
        table = ROOT / given.results / "tables" / f"{EXPERIMENT}-claim.md"
        if table.is_file() and not codes[-1]:
            print(table.read_text(encoding="utf-8"))
    return max(codes)


def wrong(jobs: str, overrides: list[str]) -> str | None:
    """What is wrong with the settings or with the files in the mirror, in one sentence; None when nothing is."""
    if sentence := wrong_jobs(jobs):
        return sentence
    unknown = [word for word in overrides if not re.match(r"paths\.(?!results=)\w+=", word)]
    if unknown:
        return f"unknown option '{unknown[0]}', wanted paths.KEY=VALUE of configs/command.yaml, or RESULTS=FOLDER"
    options = dict(word.split("=", 1) for word in overrides)
    mirror = options.get("paths.mirror") or os.environ.get("GPAM_MIRROR")
    if not mirror:
        return (
            "the Penn Treebank's text is licensed and has no address: put ptb.train.txt, ptb.valid.txt and "
            "ptb.test.txt into a folder ptb/ and set GPAM_MIRROR (or EXTRA=paths.mirror=...) to the folder around it"
        )
    mirror = os.path.expanduser(mirror)
    if not Path(mirror).is_dir():
        return f"GPAM_MIRROR: got '{mirror}', which is no folder, wanted one with ptb/ptb.train.txt and the others"
    for place, checksum in _SPLIT.findall((ROOT / "configs" / "dataset" / "ptb.yaml").read_text(encoding="utf-8")):
        path = Path(mirror) / place
        if not path.is_file():
            return (
                f"{path} is missing; {mirror} (GPAM_MIRROR) must hold the three files of Mikolov's preparation in ptb/"
            )
        found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        if found != checksum:
            return f"{path} is not the published file: its MD5 is {found}, wanted {checksum}; get that file again"
    return None


def announcement(jobs: str, results: str) -> str:
    """The first line: what will run, and what the plan says that it costs."""
    plan = (ROOT / PLAN).read_text(encoding="utf-8")
    runs, hours = map(float, re.findall(rf"^\| `{PART}` \|.* (\d+) \| ([\d.]+) \|$", plan, re.MULTILINE)[0])
    total = math.ceil(runs * hours / int(jobs))
    return (
        f"{EXPERIMENT}: Penn Treebank, 15 layers: softmax, daGPAM, its controls and an LSTM: {runs:g} runs, each "
        f"{hours:g} hour(s) of one core by {PLAN}, {jobs} at a time: about {total} hours; it goes on where it stopped, "
        f"and {results}/queue.txt says how it stands"
    )


if __name__ == "__main__":
    sys.exit(main())
