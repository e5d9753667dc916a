"""Use an exported model on text from standard input: use.py translate|perplexity FOLDER < TEXT."""

import logging
import sys

from gpam.errors import UsageError
from gpam_suite.run.command_line import guarded


def main() -> None:
    words = sys.argv[1:]
    if len(words) != 2 or words[0] not in ("translate", "perplexity"):
        raise UsageError(f"got '{' '.join(words)}', wanted translate or perplexity and a folder: {__doc__}")
    logging.disable(logging.WARNING)  # fairseq's notes while it is imported
    from gpam_suite.tools.pretrained import load

    model = load(words[1])
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the text is not UTF-8 (byte {error.start}); convert it") from None
    if words[0] == "translate":
        print("".join(f"{line}\n" for line in model.translate(text.removesuffix("\n").split("\n"))), end="")
    else:
        score = model.score(text)
        print(f"perplexity {score.perplexity:.2f} by {model.config['unit']} ({score.words:,}; {score.tokens:,} tokens)")


if __name__ == "__main__":
    sys.exit(guarded(main))
