"""Use an exported model on text from standard input: translate it, tell its perplexity, or write on behind it."""

import logging
import sys

from gpam.errors import UsageError
from gpam_suite.common.markup import shown
from gpam_suite.run.command_line import Parser, guarded, user_path


def main() -> None:
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    for what in ("translate", "perplexity", "write"):
        command = commands.add_parser(what)
        command.add_argument("folder", type=user_path, help="the exported model")
    write = commands.choices["write"]
    write.add_argument("--tokens", type=int, default=100, help="how many to write; default: %(default)s")
    write.add_argument("--temperature", type=float, default=1.0, help="0: always the likeliest; default: %(default)s")
    write.add_argument("--top-k", type=int, default=0, help="draw from the likeliest only; 0, the default: from all")
    write.add_argument("--seed", type=int, default=1, help="another seed, another text; default: %(default)s")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # fairseq's notes while it is imported
    from gpam_suite.tools.pretrained import load

    model = load(given.folder)
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the text is not UTF-8 (byte {error.start}); convert it") from None
    if given.what == "translate":
        print("".join(f"{shown(line)}\n" for line in model.translate(text.removesuffix("\n").split("\n"))), end="")
    elif given.what == "write":
        print(shown(model.write(text.removesuffix("\n"), given.tokens, given.temperature, given.top_k, given.seed)))
    else:
        score = model.score(text)
        unit = model.config["unit"]
        print(f"perplexity {score.perplexity:.2f} by {unit} ({score.words:,} {unit}s, {score.tokens:,} tokens)")


if __name__ == "__main__":
    sys.exit(guarded(main))
