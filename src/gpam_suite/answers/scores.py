"""Questions 1, 2, 11 and 12: daGPAM's scores against softmax's."""

from gpam_suite.answers.answer import BETTER, MISSING, NO, OPEN, UNDECIDED, Answer, all_of, at_least, told
from gpam_suite.answers.plan import LANGUAGE_MODELS, LENGTHS, OTHER_DATA, TRANSLATIONS
from gpam_suite.answers.runs import Runs, compared, gain


def better(runs: Runs) -> list[Answer]:
    """1 and 2: in language modelling, in translation."""
    asked = [
        (number, [compared(runs, name) for name in names])
        for number, names in ((1, LANGUAGE_MODELS), (2, TRANSLATIONS))
    ]
    return [Answer(number, all_of([one.verdict for one in findings]), told(findings)) for number, findings in asked]


def elsewhere(runs: Runs) -> list[Answer]:
    """11: other data, and post-LN: one sign everywhere, and clear in two."""
    findings = [compared(runs, name) for name in OTHER_DATA]
    verdicts = [found.verdict for found in findings]
    gains = [gain(runs, found.experiment) for found in findings if found.verdict != MISSING]
    one_sign = None not in gains and len({found > 0 for found in gains}) < 2
    answer = at_least(verdicts, 2) if one_sign else NO
    if answer != NO and MISSING in verdicts:
        answer = OPEN
    return [Answer(11, answer, told(findings))]


def lengths(runs: Runs) -> list[Answer]:
    """12: better where sequences are long, and by more than where they are short."""
    verdicts, findings = [], []
    for names in LENGTHS:
        found = [compared(runs, name) for name in names]
        findings += found
        if MISSING in (one.verdict for one in found):
            verdicts.append(MISSING)
        else:
            short, long = (gain(runs, name) for name in names)
            more = short is not None and long is not None and long > short
            verdicts.append(BETTER if found[1].verdict == BETTER and more else UNDECIDED)
    return [Answer(12, all_of(verdicts), told(findings))]
