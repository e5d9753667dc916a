"""What is promised of runs: killed, repeated, long, wrong."""

from soak.part import Part

KILLED, SAME, TRUE, LONG = "Killed anywhere", "Determinism", "Never silently wrong", "Long runs"
_KILLED, _WATCHED = "tests/gpam_suite/test_killed.py", "tests/gpam_suite/test_watched_training.py"
_CAMPAIGNS = "tests/gpam_suite/test_campaigns.py"
_SAME, _LONG = "tests/gpam_suite/test_determinism.py", "tests/gpam_suite/test_long_runs.py"
_SAME_BITS = (
    "A run killed with SIGKILL at any moment and started again ends with the parameters, optimiser state, metrics, "
    "history and tables of one never killed, bit by bit (CPU, daGPAM with trainable lambdas, dropout)."
)
_NO_DIFFERENCE = "{kills} kills ({phases}): no difference in {parameters:,} parameters and {rows:,} rows of history"

PARTS = (
    Part(
        "kills-lm",
        KILLED,
        f"{_SAME_BITS} A language model.",
        f"{_KILLED}::test_a_killed_run_ends_with_the_bits_of_one_never_killed",
        "soak.kills:language_model",
        _NO_DIFFERENCE,
    ),
    Part(
        "kills-nmt",
        KILLED,
        "The same of a translation model.",
        f"{_KILLED}::test_a_killed_run_ends_with_the_bits_of_one_never_killed",
        "soak.kills:translation",
        _NO_DIFFERENCE,
    ),
    Part(
        "sigterm",
        KILLED,
        "SIGTERM and Ctrl-C save at the update under way, say so, and the same command goes on, with the same bits.",
        f"{_KILLED}::test_a_run_asked_to_stop_saves_first_and_goes_on_with_the_same_bits",
    ),
    Part(
        "orphans",
        KILLED,
        "No worker outlives the process that started it, however that ended (Linux).",
        f"{_KILLED}::test_the_worker_of_a_killed_process_ends_too",
    ),
    Part(
        "side-by-side",
        KILLED,
        "Members of a multirun side by side (launcher=joblib) save when what started them has ended, however (Linux).",
        f"{_KILLED}::test_members_side_by_side_save_when_the_sweep_is_killed",
    ),
    Part(
        "one-process-a-folder",
        KILLED,
        "Of two processes on one run folder one works, and the other says so.",
        "tests/gpam_suite/test_run.py::test_two_processes_do_not_share_a_folder",
    ),
    Part(
        "cut-checkpoint",
        KILLED,
        "A checkpoint that something else cut off ends a run with one sentence; nothing else is lost.",
        "tests/gpam_suite/test_run.py::test_a_cut_off_checkpoint_stops_a_resumed_run_with_one_sentence",
    ),
    Part(
        "clock",
        KILLED,
        "A clock that is set back gives no negative duration.",
        f"{_SAME}::test_a_clock_that_goes_back_gives_no_negative_time",
    ),
    Part(
        "same-bits",
        SAME,
        "One seed gives the same parameters, history and scores on one machine, with any number of data workers.",
        f"{_SAME}::test_the_same_seed_gives_the_same_bits_with_any_number_of_data_workers",
        "soak.same_bits:soak",
        "{runs} runs with {workers} data workers: no difference in {parameters:,} parameters",
    ),
    Part(
        "modules",
        TRUE,
        "A run whose attention modules are not what its configuration says does not start.",
        f"{_WATCHED}::test_a_run_whose_modules_are_not_what_its_configuration_says_does_not_start",
    ),
    Part(
        "invariants",
        TRUE,
        "Attention that leaves its range, misses its row sum, or is computed other than by its formula ends the run, "
        "naming update and layer (`checks.attention_every` updates, at the beginning of the longest sentence of the "
        "batch).",
        f"{_WATCHED}::test_a_violation_ends_training_naming_update_and_layer",
    ),
    Part(
        "watching",
        TRUE,
        "That check takes less than 1 % of training time, and changes no bit of it.",
        f"{_LONG}::test_watching_attention_costs_less_than_a_hundredth",
        "soak.watching:cost",
        "{percent} % at a check every {every} updates: {check_milliseconds} ms a check, {update_milliseconds} ms an "
        "update (6 layers of 128 on one thread)",
    ),
    Part(
        "divergence",
        TRUE,
        "A number that is none ends the run with a record that names the update and the first parameter, output or "
        "gradient that was not finite.",
        f"{_WATCHED}::test_the_first_number_that_is_none_is_named",
    ),
    Part(
        "protocols",
        TRUE,
        "A table never mixes protocols.",
        "tests/gpam_suite/test_tables.py::test_mixed_runs_are_refused_and_both_named",
    ),
    Part(
        "mixed-runs",
        TRUE,
        "Whatever two runs of an experiment differ in, their table refuses it, names a row after it, or has a reason "
        "why it may differ. Overrides of all of fairseq's numbers and switches, and of ours, drawn at random.",
        f"{_CAMPAIGNS}::test_no_table_mixes_runs_without_a_word",
        "soak.mixing:soak",
        "{runs:,} runs with one to three of {options} overrides: {not_one_table} refused by the table, {own_row} rows "
        "of their own, {row_with_others} in a row with others by what may differ, {refused} refused before they start",
    ),
    Part(
        "changed-data",
        TRUE,
        "Text that changed under a finished run is an error, not a skipped run.",
        f"{_SAME}::test_data_that_changed_under_a_finished_run_is_noticed",
    ),
    Part(
        "changed-preparation",
        TRUE,
        "A prepared file that somebody changed is not trained on.",
        f"{_SAME}::test_a_preparation_that_was_changed_is_not_trained_on",
    ),
    Part(
        "changed-stage",
        TRUE,
        "No flipped bit of a finished stage or preparation is read: it is made again, or refused.",
        "tests/gpam_suite/test_data_stages.py::test_a_stage_that_was_changed_in_place_is_made_again",
    ),
    Part(
        "flipped-bits",
        TRUE,
        "No flipped bit of a checkpoint gives other weights.",
        "tests/gpam_fairseq/test_no_strangers_code.py::test_no_flipped_bit_of_a_checkpoint_gives_other_weights",
    ),
    Part(
        "flipped-files",
        TRUE,
        "A flipped bit of any file that decides a number is noticed when a run, an evaluation or a table reads it, or "
        "changes nothing. (A run's history, of which curves are drawn, carries no checksum, nor do records made before "
        "the first version after 0.1.0.)",
        f"{_CAMPAIGNS}::test_no_flipped_bit_is_read",
        "soak.flips:soak",
        "{flips:,} flips, {each} in each of {kinds}: {refused} refused, {unchanged} with everything read as before",
    ),
    Part(
        "changed-run",
        TRUE,
        "A run whose configuration, text, dictionary or checkpoint changed is not evaluated, exported or looked into.",
        "tests/gpam_suite/test_run.py::test_what_changed_under_a_run_is_not_read_again",
    ),
    Part(
        "updates",
        LONG,
        "Memory does not grow with the updates of a training.",
        f"{_LONG}::test_memory_does_not_grow_with_updates",
        "soak.memory:updates",
        "{count:,} updates: {mebibytes:,} MiB, {growth} MiB more in the end than after a tenth",
    ),
    Part(
        "members",
        LONG,
        "Memory does not grow with the members of a sweep in one process.",
        f"{_LONG}::test_memory_does_not_grow_with_the_members_of_a_sweep",
        "soak.memory:members",
        "{count:,} members: {mebibytes:,} MiB, {growth} MiB more in the end than after a tenth",
    ),
)
