"""Archives in memory, and those of the form in which corpora are published, with sentences made here."""

import html
import io
import tarfile
import zipfile

WORDS = {
    "de": ["ein", "Hund", "läuft", "schnell", "usw.", "im", "Haus", "„so“", "R&D"],
    "en": ["a", "Dog", "runs", "fast", "etc.", "in", "the", "house,", "U.S.", "R&D"],
}


def sentence(language, number):
    words = WORDS[language]
    length = 1 + number * 7 % 11 + (number % 3 if language == "de" else 0)
    return " ".join(words[(number * 3 + k * k) % len(words)] for k in range(length)) + " ."


def talks(language, pairs):
    """WIT3's training text: facts about a talk, its title and description, its sentences."""
    lines = []
    for number in range(pairs):
        if number % 50 == 0:
            lines += ["<url>http://x.example</url>", "<keywords>talks, x</keywords>", "<talkid>7</talkid>"]
            lines += [f"<title>{sentence(language, number)}</title>"]
            lines += [f"<description>{sentence(language, number + 1)}</description>"]
        lines.append("" if number % 97 == 96 and language == "de" else f"{sentence(language, number)} ")
    return lines


def segments(language, pairs, tag="srcset"):
    lines = [f'<{tag} setid="x">', '<doc docid="1">', "<url>x</url>"]
    for number in range(1, pairs + 1):
        lines.append(f'<seg id="{number}"> {html.escape(sentence(language, number), quote=False)} it’s </seg>')
    return [*lines, "</doc>", f"</{tag}>"]


def tarred(entries, mode="w:gz"):
    """A tar archive of names, types and contents; that of a link is where it leads."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind == tarfile.REGTYPE:
                entry.size = len(content)
            else:
                entry.linkname = content.decode()
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def zipped(files, method=zipfile.ZIP_DEFLATED):
    """A zip archive of names (or a ``ZipInfo``) and contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def packed(files):
    """A tar archive of names and lines."""
    texts = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in files.items()}
    return tarred([(name, tarfile.REGTYPE, text) for name, text in texts.items()])


def iwslt_files(pairs):
    """Name to lines of the files in IWSLT 2014's archive; ``pairs`` for training."""
    files = {}
    for language in ("de", "en"):
        files[f"de-en/train.tags.de-en.{language}"] = talks(language, pairs)
        for number, name in enumerate(["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]):
            files[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = segments(language, 10 + number)
    return files
