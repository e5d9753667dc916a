"""Use an exported model on text from standard input."""

import logging
import sys

from gpam.errors import UsageError
from gpam_suite.common.arguments import Parser
from gpam_suite.run.command_line import guarded


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("what", choices=("translate", "perplexity"))
    parser.add_argument("folder", help="the exported model")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # fairseq's notes while it is imported
    from gpam_suite.tools.pretrained import load

    model = load(given.folder)
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the text is not UTF-8 (byte {error.start}); convert it") from None
    if given.what == "translate":
        print("".join(f"{line}\n" for line in model.translate(text.removesuffix("\n").split("\n"))), end="")
    else:
        score = model.score(text)
        print(f"perplexity {score.perplexity:.2f} by {model.config['unit']} ({score.words:,}; {score.tokens:,} tokens)")


if __name__ == "__main__":
    sys.exit(guarded(main))
