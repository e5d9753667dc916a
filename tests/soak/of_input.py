"""What is promised of what comes from outside: mistakes, damage, hostility."""

from soak.part import Part

INPUT, SECURITY = "Bad input", "Security"
_LIMITS = "tests/gpam_suite/test_limits.py::"
_TRUST = "tests/gpam_suite/test_trust.py::"
_NO_CODE = "tests/gpam_fairseq/test_no_strangers_code.py::"

NOTES = {
    INPUT: """\
A result is right when an independent reading of the same bytes gives the same lines, ids, merges, numbers or
parameters. What holds a checksum (zip, gzip, xz, torch's checkpoints, exported models) is never read wrongly
when it is damaged; plain tar and torch's old format hold none. A checkpoint is read as a whole before it is
judged, so a hostile one can ask for as much memory as the limits of its user allow. Small disks are mounted
where the tests run as root; where they cannot be, these tests skip.
""",
    SECURITY: """\
What is not promised. `--user-dir` on fairseq's own command line still names code to run: that is its purpose,
and only who types the command can give it. A folder in `hydra.searchpath` is read for more configurations,
under the same rules. torch is installed by its version and not by a hash, since every build of it (CPU, each
CUDA release) has other files, and so are the CUDA libraries that it brings. `make audit` compares every
installed file with what its package says, without a network; for known weaknesses it asks PyPI's database
through `pip-audit`, and where that cannot be reached it says so and fails. An audit finds what its database
knew on the date that stands beside it, and the pins may be younger than that: audit again. The processes of
one training exchange pickles among themselves and must be alone on their network.
""",
}

PARTS: tuple[Part, ...] = (
    Part(
        "drawn-input",
        INPUT,
        "Whatever is read (texts, dictionaries, BPE codes, archives, records, checkpoints, exported models, "
        "configurations, overrides) gives one clear sentence or the right result, judged by a plain reading of the "
        "same bytes: no traceback, no hang, no file where none belongs. Cases drawn by hypothesis.",
        "tests/gpam_suite/test_fuzzing.py::test_a_clear_sentence_or_a_right_result",
        "fuzzing.full:drawn",
        "{cases:,} cases, none broke it: {each}",
    ),
    Part(
        "guided-input",
        INPUT,
        "The same of the file readers, with files that atheris changes towards branches not yet reached.",
        "tests/gpam_suite/test_fuzzing.py::test_files_that_reach_every_branch",
        "fuzzing.full:guided",
        "{cases:,} cases, none broke it: {each}",
    ),
    Part(
        "full-disk-preparing",
        INPUT,
        "A disk that fills while data are prepared: one sentence, and no half-made preparation.",
        f"{_LIMITS}test_a_full_disk_while_data_are_prepared",
    ),
    Part(
        "full-disk-training",
        INPUT,
        "A disk that fills while a run trains: one sentence, no record, and every checkpoint there is a whole one.",
        f"{_LIMITS}test_a_full_disk_while_training",
    ),
    Part(
        "read-only",
        INPUT,
        "A read-only results or data folder is named in one sentence before anything starts.",
        f"{_LIMITS}test_a_read_only_folder",
    ),
    Part(
        "vanished-data",
        INPUT,
        "Prepared data that vanish before training reads them: one sentence, no record.",
        f"{_LIMITS}test_data_that_vanish_before_training_reads_them",
    ),
    Part(
        "memory-limit",
        INPUT,
        "A model that does not fit into the allowed memory: one sentence, no record.",
        f"{_LIMITS}test_a_limit_of_memory",
    ),
    Part(
        "checkpoints-run-nothing",
        SECURITY,
        "A checkpoint runs no code, by whatever way fairseq opens it: training, restoring, generating, validating.",
        "tests/gpam_fairseq/test_command_line.py::test_the_loader_refuses_to_run_code",
    ),
    Part(
        "every-loader",
        SECURITY,
        "Every `torch.load` of fairseq's takes tensors and plain data only, whatever the environment asks for.",
        f"{_NO_CODE}test_every_torch_load_of_fairseqs_is_guarded",
    ),
    Part(
        "no-other-way",
        SECURITY,
        "fairseq has no other call that could run a file; an update of it that brings one fails this test.",
        f"{_NO_CODE}test_fairseq_has_no_other_way_to_run_a_file",
    ),
    Part(
        "no-eval",
        SECURITY,
        "fairseq's options and the configuration inside a checkpoint are read as literals, never evaluated as Python.",
        f"{_NO_CODE}test_the_model_of_a_checkpoint_evaluates_no_code",
    ),
    Part(
        "archives-stay-inside",
        SECURITY,
        "An archive writes nothing but what is asked of it: links, devices and names that lead out are no files.",
        "tests/gpam_suite/test_data_unpack.py::test_a_set_out_of_an_archive_that_would_write_elsewhere",
    ),
    Part(
        "bombs",
        SECURITY,
        "An archive made to fill the memory or the disk is refused while it is unpacked.",
        "tests/gpam_suite/test_data_unpack.py::test_an_archive_that_unpacks_to_too_much",
    ),
    Part(
        "no-shell",
        SECURITY,
        "No module, script or recipe of make's gives a user's value to a shell (`SEEDS='1; touch x'` starts nothing).",
        "tests/test_no_shell.py::test_a_setting_of_make_starts_nothing",
    ),
    Part(
        "no-class-of-its-choice",
        SECURITY,
        "A configuration makes no object of a class that it names, sets no variable of the environment, and has "
        "fairseq import no folder.",
        f"{_TRUST}test_a_configuration_names_no_code",
    ),
    Part(
        "no-secret-by-configuration",
        SECURITY,
        "A configuration reads no variable that may hold a secret.",
        f"{_TRUST}test_no_configuration_reads_a_token",
    ),
    Part(
        "tokens",
        SECURITY,
        "A token of wandb's is in no file and no line of a whole run with wandb writing.",
        f"{_TRUST}test_a_token_of_wandbs_is_in_no_file_of_a_run",
    ),
    Part(
        "locked",
        SECURITY,
        "`make setup` installs nothing whose hash is not in `requirements.lock`, except torch and its CUDA libraries.",
        "tests/test_lock.py::test_setup_installs_nothing_unhashed_but_torch",
    ),
    Part(
        "audited",
        SECURITY,
        "No pinned version has a weakness that PyPA's advisory database lists, and what is installed is what was "
        "locked, byte for byte (`make audit ADVISORIES=FOLDER`, a checkout of the database).",
        "tests/test_audit.py::test_a_weakness_is_named_and_fails",
        "soak.audit:advisories",
        "{pins} pins, {advisories:,} advisories up to {last}: none applies",
    ),
)
