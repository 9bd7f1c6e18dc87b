"""What the reader says of each pair's recordings, beside what the change brought: docs/advice.md, and each pair that was not seen
in docs/advice_unseen.md.

uv run benchmarks/advice/ledger.py FOLDER NAME    read what record.py wrote, and keep it as benchmarks/advice/NAME.json
uv run benchmarks/advice/ledger.py                write both from what is kept
"""

import argparse
import json
from pathlib import Path
import statistics
import sys
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from advice.pairs import PAIRS
from advice.record import MORE
from advice.score import FIRST, PROMISE, SOME, TOLERANCE, distance, interval_score, scores
from trace_reader import Facts, read, write_all

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
KEPT = 5  # findings of a recording
LATEST = 5  # sets
BY_A_READER = "by_a_reader"  # the file of what somebody said
COLUMNS = "| {} | save something | named by the first two | gain inside | interval score | too much promised | plain step held |"
LINE = "|---|---|---|---|---|---|---|"
NOTHING = SOME  # of a step: a change that brought no more brought nothing
NOT_ADVISED = ("loader_workers",)  # without a GPU: there a loader's workers take cores from the model, and the finding says so
# Why the reader is wrong, where it is.
NOTES = {
    "cpu_mask": "the mask's copies wait for the GPU; the lead that the CPU loses may be worth more time than the copies take",
    "pinned_small": "after the wait the CPU takes 1 ms in the trace to get ahead of the GPU again, without the profiler 0.3 ms",
    "sdpa": "its vocabulary's finding (50257) promises more, and keeps that promise: see `vocabulary`",
    "checkpointing": "its vocabulary's finding (50257) promises more, and keeps that promise: see `vocabulary`",
    "empty_cache": "its vocabulary's finding (50257) promises more; the driver's calls may delay more than the trace shows",
    "resnet50": "the time that is left is CPU time, and the profiler may have cost more of it than its prices say",
    "optimizer_loop": "the profiler cost more CPU time than its prices say: a recorded step is 2.9 times as long",
    "gpt2_graph": "the step before the change takes 4.5 to 8.3 ms, depending on the round",
    "tables": "the CPU may have been slower in this process than its launches in the trace show",
    "collection": "the collector's time differs by 17% between rounds",
    "compile_matmul": "a GPU that is busy for long may have a lower clock",
    "more_workers": "its step takes 6.9 to 9.0 ms, depending on the round",
    "optimizer_foreach": "its vocabulary's finding (50257) promises more; the CPU's time differs by 20% between rounds",
}


def seen(trace: Path) -> dict[str, Any]:
    """Return what the reader says of a recording."""
    facts = read(str(trace))
    return {
        "device": facts.device,
        "recorded_verdict": facts.recorded_verdict,
        "verdict": facts.verdict,
        "recorded_us": _rounded(facts.step_period_us),
        "gpu_busy_us": _rounded(_busy_us(facts)),
        "plain_us": [_rounded(us) for us in (facts.plain.low_us, facts.plain.high_us) if us is not None],
        "findings": [_finding(finding) for finding in facts.findings if finding.slug != facts.verdict or finding.gain][:KEPT],
    }


def _busy_us(facts: Facts) -> float | None:
    busy_us = [step.gpu_busy_us for step in facts.steps if step.gpu_busy_us is not None]
    return statistics.mean(busy_us) if busy_us else None


def _finding(finding: Any) -> list[Any]:
    return [finding.slug, *((round(finding.gain.low, 3), round(finding.gain.high, 3)) if finding.gain else ())]


def _rounded(us: float | None) -> float | None:
    return None if us is None else round(us, 1)


def keep(folder: Path, name: str) -> None:
    """Read what record.py wrote into a folder, and keep what is needed of it."""
    kept = {}
    for pair in PAIRS:
        if (measured := folder / f"{pair}.json").exists():
            print(pair, file=sys.stderr, flush=True)
            kept[pair] = json.loads(measured.read_text())
            for when in ("before", "after"):
                kept[pair][when] = seen(folder / f"{pair}_{when}.json.gz")
            for what in MORE:
                kept[pair][f"before, {what}"] = seen(folder / f"{pair}_before_{what}.json.gz")
    lines = ",\n".join(f" {json.dumps(pair)}: {json.dumps(values)}" for pair, values in kept.items())
    write_all({HERE / f"{name}.json": f"{{\n{lines}\n}}\n".encode()})


class Entry:
    """A pair as it was kept: what the change brought, and what was said of it."""

    def __init__(self, name: str, kept: dict[str, Any]):
        self.name, self.kept, self.pair = name, kept, PAIRS[name]
        self.before_us, self.after_us = (statistics.median(kept["plain_us"][when]) for when in ("before", "after"))
        self.gain = 1 - self.after_us / self.before_us
        named_by = () if kept.get("device") == "cpu" and name in NOT_ADVISED else self.pair.named_by
        # The finding that has the verdict's name explains the verdict, unless it is the change.
        findings = [f for f in kept["before"]["findings"] if f[0] != kept["before"]["verdict"] or f[0] in named_by]
        named = [(place + 1, f) for place, f in enumerate(findings) if f[0] in named_by]
        self.place: int | None = named[0][0] if named else None
        self.finding: list[Any] | None = named[0][1] if named else None
        self.told = tuple(self.finding[1:]) if self.finding and len(self.finding) > 1 else None

    @property
    def brings_nothing(self) -> bool:
        return self.gain <= NOTHING

    @property
    def is_inside(self) -> bool | None:
        return None if self.told is None else self.told[0] - TOLERANCE <= self.gain <= self.told[1] + TOLERANCE

    def steps(self) -> list[tuple[str, float, list[float], bool | None]]:
        """Before and after: the measured plain step, what was estimated, and whether that holds it."""
        return [
            _step(when, measured_us, self.kept[when]["plain_us"])
            for when, measured_us in (("before", self.before_us), ("after", self.after_us))
        ]

    def steps_with_more(self) -> list[tuple[str, float, list[float], bool | None]]:
        """Return the same of the step before its change, recorded with stacks, and with memory."""
        keys = [key for what in MORE if (key := f"before, {what}") in self.kept]
        return [_step(key, self.before_us, self.kept[key]["plain_us"]) for key in keys]

    def recorded_with(self, what: str) -> "Entry":
        """Return the same pair, as the reader sees the step before its change recorded with stacks, or with memory."""
        return Entry(self.name, {**self.kept, "before": self.kept[f"before, {what}"]})


SETS = {  # what score.py kept, and what the reader of before this round (2026-11-25) said of the same files
    "known_gpu": ("known, 23 pairs of pairs.py on an H100", (13, 14, 0.68, 0, 17)),
    "known_cpu": ("known, 15 pairs of pairs.py on two cores", (11, 10, 0.75, 0, 8)),
    "unseen_gpu": ("**not seen**, 32 pairs on an H200", (11, 5, 0.90, 0, 13)),
    "unseen_cpu": ("**not seen**, 16 pairs on two cores of that machine", (3, 1, 0.98, 0, 8)),
    "unseen2_gpu": ("**not seen**, a second set, 31 pairs on an H200", (12, 9, 0.75, 0, 11)),
    "unseen2_cpu": ("**not seen**, the second set's 11 pairs on two cores of that machine", (2, 1, 0.96, 0, 2)),
    "unseen3_gpu": ("**not seen**, a third set, 43 pairs on an H200", (9, 2, 0.98, 0, 11)),
    "unseen3_cpu": ("**not seen**, the third set's 21 pairs on two cores (x86-64, AMD EPYC)", (6, 4, 0.93, 1, 7)),
    "unseen4_gpu": ("**not seen**, a fourth set, 30 pairs on an H200", (12, 7, 0.84, 0, 20)),
    "unseen4_cpu": ("**not seen**, the fourth set's 14 pairs on two cores of that machine", (3, 2, 0.90, 0, 6)),
    "unseen5_gpu": ("**not seen**, a fifth set, 20 pairs on an H200", (9, 3, 0.85, 0, 13)),
    "unseen5_cpu": ("**not seen**, the fifth set's 10 pairs on two cores of that machine", (2, 2, 0.87, 0, 7)),
    "unseen6_gpu": ("**not seen**, a sixth set, 28 pairs on an H200", (7, 6, 0.92, 0, 19)),
    "unseen6_cpu": ("**not seen**, the sixth set's 8 pairs on two cores of that machine", (0, 0, 1.0, 0, 4)),
    "unseen7_gpu": ("**not seen**, a seventh set, 28 pairs on an H200", (12, 8, 0.80, 0, 12)),
    "unseen7_cpu": ("**not seen**, the seventh set's 12 pairs on two cores of that machine", (3, 1, 0.94, 0, 7)),
    "unseen8_gpu": ("**not seen**, an eighth set, 28 pairs on an H200", (7, 5, 0.92, 0, 13)),
    "unseen8_cpu": ("**not seen**, the eighth set's 14 pairs on two cores (x86-64, AMD EPYC)", (3, 2, 0.97, 0, 8)),
    "unseen9_cpu": ("**not seen**, a ninth set, 18 pairs on two cores (x86-64, AMD EPYC)", (5, 4, 0.89, 0, 10)),
    "unseen10_cpu": ("**not seen**, a tenth set, 14 pairs on two cores (x86-64, AMD EPYC)", (3, 2, 0.92, 0, 3)),
    "unseen11_gpu": ("**not seen**, an eleventh set, 20 pairs on an H200", (5, 3, 0.85, 1, 11)),
    "unseen11_cpu": ("**not seen**, the eleventh set's 12 pairs on two cores (x86-64, AMD EPYC)", (1, 0, 1.00, 0, 4)),
    "unseen12_cpu": ("**not seen**, a twelfth set, 16 pairs on two cores (x86-64, AMD EPYC)", (2, 1, 0.99, 0, 7)),
    "unseen13_gpu": ("**not seen**, a thirteenth set, 16 pairs on an H200", (7, 3, 0.85, 0, 12)),
    "unseen13_cpu": ("**not seen**, the thirteenth set's 14 pairs on two cores (x86-64, AMD EPYC)", (0, 0, 1.00, 0, 8)),
    "unseen14_gpu": ("**not seen**, a fourteenth set, 16 pairs on an H200", (4, 3, 0.89, 0, 8)),
    "unseen14_cpu": ("**not seen**, the fourteenth set's 14 pairs on two cores (x86-64, AMD EPYC)", (2, 2, 0.94, 0, 6)),
    "unseen15_gpu": ("**not seen**, a fifteenth set, 18 pairs on an H200", (6, 2, 0.91, 0, 7)),
    "unseen15_cpu": ("**not seen**, the fifteenth set's 14 pairs on two cores (x86-64, AMD EPYC)", (1, 1, 0.99, 0, 5)),
    "unseen16_gpu": ("**not seen**, a sixteenth set, 18 pairs on an H200", (6, 3, 0.86, 0, 10)),
    "unseen16_cpu": ("**not seen**, the sixteenth set's 14 pairs on two cores (x86-64, AMD EPYC)", (3, 2, 0.87, 0, 8)),
    "unseen17_gpu": ("**not seen**, a seventeenth set, 18 pairs on an H200", (8, 3, 0.91, 1, 11)),
    "unseen17_cpu": ("**not seen**, the seventeenth set's 14 pairs on two cores (x86-64, AMD EPYC)", (4, 3, 0.84, 0, 3)),
    "unseen18_gpu": ("**not seen**, an eighteenth set, 18 pairs on an H200", (6, 4, 0.88, 0, 7)),
    "unseen19_gpu": ("**not seen**, a nineteenth set, 16 pairs on an H200", (6, 4, 0.70, 0, 8)),
    "unseen19_cpu": ("**not seen**, the nineteenth set's 11 pairs on two cores (x86-64, AMD EPYC)", (2, 2, 0.90, 0, 4)),
    "unseen20_gpu": ("**not seen**, a twentieth set, 16 pairs on an H200", (4, 3, 0.98, 0, 7)),
    "unseen20_cpu": ("**not seen**, the twentieth set's 11 pairs on two cores (x86-64, AMD EPYC)", (4, 2, 0.92, 0, 4)),
    "unseen21_gpu": ("**not seen**, a twenty-first set, 16 pairs on an H200", (8, 4, 0.97, 0, 4)),
    "unseen21_cpu": ("**not seen**, the twenty-first set's 11 pairs on two cores (x86-64, AMD EPYC)", (3, 2, 0.91, 0, 4)),
    "unseen22_gpu": ("**not seen**, a twenty-second set, 16 pairs on an H200", (1, 0, 0.99, 0, 13)),
    "unseen22_cpu": ("**not seen**, the twenty-second set's 16 pairs on two cores (x86-64, AMD EPYC)", (1, 1, 0.98, 0, 9)),
    "unseen23_cpu": ("**not seen**, a twenty-third set, 16 pairs on two cores (x86-64, AMD EPYC)", (2, 1, 1.00, 0, 6)),
    "unseen24_gpu": ("**not seen**, a twenty-fourth set, 20 pairs on an H200", (4, 3, 0.93, 0, 13)),
    "unseen25_cpu": ("**not seen**, a twenty-fifth set, 12 pairs on two cores (x86-64, AMD EPYC)", (2, 1, 0.95, 0, 8)),
    "unseen26_gpu": ("**not seen**, a twenty-sixth set, 18 pairs on an H200", (5, 3, 0.89, 1, 11)),
    "unseen27_cpu": ("**not seen**, a twenty-seventh set, 10 pairs on two cores (x86-64, AMD EPYC)", (1, 1, 0.94, 0, 5)),
    "unseen28_gpu": ("**not seen**, a twenty-eighth set, 18 pairs on an H200", (0, 0, 1.00, 0, 14)),
    "unseen29_cpu": ("**not seen**, a twenty-ninth set, 10 pairs on two cores (x86-64, AMD EPYC)", (2, 1, 0.98, 0, 5)),
    "unseen30_gpu": ("**not seen**, a thirtieth set, 18 pairs on an H200", (5, 4, 0.83, 1, 13)),
    "unseen31_cpu": ("**not seen**, a thirty-first set, 8 pairs on two cores (x86-64, AMD EPYC)", (0, 0, 1.00, 0, 5)),
    "unseen_jobs": ("**not seen**, 23 jobs of two ranks on two H200", (6, 4, 0.75, 0, 18)),
}
# Why what is told of a pair that no rule had seen is wrong, or nothing is.
WHY = {
    "enzymes_annotated": "the chain ended at torch.tensor() of a number; it goes on since, 0.46 to 0.85",
    "support_tickets_routed": "recorded without stacks: the other thread has no op",
    "orchards_mapped": "told second (0.54 to 0.84), in words that the pattern does not match",
    "traffic_flows_forecast": "told second (0.32 to 0.68), in words that the pattern does not match",
    "radar_echoes_detected": "the sort was third, without a number, as one that index_add_ would spare",
    "drone_frames_tracked": "only the line was told that waits for the lock; the other thread has no function in the recording",
    "clauses_continued": "a head whose rows are picked by an index was not known; it is since, 0.45 to 0.80",
    "maize_rows_graded": "the function was first (0.75 to 0.93); cut-afterwards, second, has 0.69 to 0.91",
    "groundwater_levels_kriged": "an inverse was counted as gone, and a factor takes a part of it; 0.59 to 0.86 since",
    "traffic_cameras_counted": "named second; what a thread that holds the lock costs the other is in no row",
    "sign_language_clips": "more of the step is the GPU's than was estimated",
    "grocery_baskets_next_item": "a little more was saved than the gradient and its update take",
    "rain_radar_nowcast": "whether the CPU or the GPU limits the plain step was not sure",
    "earthquakes_listened_for": "meant to bring nothing, it saved 10%",
    "citations_between_authors": "only the pattern's word was in what was told of another change",
    "heartbeats_quantized": "a little more was saved than the differences take",
    "payments_scored": "the library's function was third, behind two that hold it",
    "call_centre_transcripts": "without the profiler the run was taken for gpu-bound, and Python's functions were not looked at",
    "traffic_camera_clips": "told first (0.23 to 0.60), in words that the pattern does not match",
    "insurance_claim_costs": "the loader's workers are not recorded",
    "speech_synthesis_chunks": "a little more was saved than the weights take",
    "street_depth_pictures": "only the pattern's word was in what was told of another change",
    "payment_network_accounts": "the change cost time: rows of 64 numbers are added faster after a sort",
    "whales_by_hydrophone": "named second, without a number: the profiler may take most of so many short functions",
    "heart_beats_sorted": "only the loader's wait was told; since, a draw between two epochs does not hide that workers start",
    "letters_to_desks": "the handler of requests was told, in which the model runs; such functions are left out since",
    "street_objects_recognised": "no rule knew a batch that is sent in pieces; one does since, 0.57 to 0.86",
    "crop_parcels_mapped": "the sort was third, without a number; an interpolation put together is told since, 0.20 to 0.53",
    "molecule_energies_fitted": "the sort was named third, without a number; rows onto few have one since, 0.29 to 0.65",
    "enzymes_stability_learned": "the plain step was estimated between 22 and 36 ms, and took 22.7",
    "ocean_eddies_simulated": "only the transforms were counted, not what is done with the spectrum; 0.19 to 0.51 since",
    "heartbeats_screened": "what a sleep waits for was not looked at; since, as much is promised as passes while no other "
    "thread is at work (0.12 to 0.31). The change cost time: its threads take turns with the steps",
    "star_field_calibrated": "no rule knew results that are new memory each time; one does since, 0.36 to 0.71",
    "street_scenes_validated": "no rule knew a mask per class; one does since; the recording took twice what a step takes",
    "assistant_voice_streamed": "a recorded step takes 34 ms, a timed one 25: its many short ops look longer",
    "rainfall_between_gauges": "what takes the place of an inverse costs most of what it took",
    "garden_birds_finetuned": "a little more was saved than the backward pass takes: no graph is built, either",
    "rumours_through_a_village": "what is gathered and joined, and its gradients, were not counted, only the products of them",
    "shipwrecks_under_the_sonar": "the comparison inside of it was told as a check; nothing is said of it since",
    "valleys_seen_through_mist": "the function of the library was first; wide windows of a pool are known since, 0.28 to 0.64",
    "sheep_told_by_their_faces": "no finding says what a mask of booleans takes on a CPU",
    "tortoises_tracked_to_water": "only the many ops were told; gradients of parts are known since, 0.38 to 0.73",
    "curling_stones_swept": "recorded without the program's functions: only the time between the ops was told",
    "weather_vanes_read_hourly": "with stacks a recorded step takes 37 ms, a timed one 19: Python's calls look longer",
    "bakeries_selling_together": "no rule knows a full covariance of few factors",
    "dunes_surveyed_after_storms": "no rule knows a product of two matrices that is written out (Kronecker)",
    "laundry_loads_sorted": "no rule knew one optimizer for each parameter; one does since, 0.16 to 0.48",
    "trail_junctions_rated": "no rule knew gathers that are joined before a layer; one does since, 0.41 to 0.75",
    "fog_banks_lifted": "no rule knew a blur whose filter is a column times a row; one does since, 0.25 to 0.60",
    "pottery_glazes_photographed": "the function that colours the photos was first (0.40 to 0.75), without the crop behind it",
    "radio_jingles_synthesised": "a recorded step takes 8.4 ms, a timed one 5.1; its weights took twice what the change saved",
    "recipe_steps_tagged": "a little less was saved than the reads take",
    "tremor_heard_in_voices": "the lists that the loader makes tensors of were told by the gaps between the ops; they are an own "
    "finding since, 0.27 to 0.60",
    "shoes_that_look_like_these": "vectors that are normalized anew are told since, 0.52 to 0.80",
    "complaints_by_department": "how much of a batch is padding is in no row",
    "cheese_ripened_in_caves": "the copies were first, without saying that they are those of a deepcopy; it does since",
    "meteors_in_the_night_sky": "saved next to nothing in the recording",
    "soups_and_stews_written_down": "the change cost time on a GPU that waits for its launches",
    "perfumes_from_molecules": "a little less was saved than the loop takes",
    "enzyme_surfaces_bound": "named first, without a number: the sum of the losses was taken for weights; 0.50 to 0.83 since",
    "bus_stops_announced": "only the cells were counted; a graph replays all small kernels of a frame",
    "warehouse_robots_give_way": "named first, without a number: the interval of its step is too wide",
    "river_levels_remembered": "named second, without a number: the interval of its step is too wide",
    "garden_tools_recommended": "no rule knew vectors of candidates that are made anew; one does since, 0.35 to 0.67",
    "moles_with_some_doubt": "no rule knew layers in front of a dropout that is sampled; one does since, 0.46 to 0.81",
    "hail_on_the_radar": "no rule knew gates with layers of their own; one does since, 0.16 to 0.47",
    "ice_cream_sold_by_the_hour": "no finding says of how many inputs the last output is made",
    "songs_for_a_long_drive": "no rule knew scores of which few are picked; one does since, 0.31 to 0.64",
    "parcels_sorted_by_label": "no rule knew a history that each step joins; one does since, 0.24 to 0.61",
    "signs_read_from_clips": "named second, without a number; a loop over frames is told since, 0.62 to 0.89",
    "library_loans_suggested": "only the copies were counted; that rows are read one by one is told since, 0.56 to 0.86",
    "stamps_squeezed_to_codes": "only the copy was counted, not what the CPU does with it",
    "drugs_taken_together": "the wait is short, and what the CPU does behind it is the program's own function, which is first",
    "antiques_named_without_training": "told first (0.29 to 0.62), in words that the pattern does not match",
    "museum_guides_answering": "no rule knew an expanded view that is copied; one does since, 0.07 to 0.18: "
    "recorded with stacks, its CPU was estimated far too slow",
    "charters_with_gaps": "named by the matrix's odd width, with the gain of that; loss-over-a-vocabulary stands second",
    "stained_glass_imagined": "named second, without a number: its step was estimated far too short",
    "ballads_made_up": "more was saved than the sort takes: what follows works on fewer numbers, too; 0.06 to 0.32 since",
    "radio_plays_transcribed": "a function of the model was named; since then, the function that makes the filters",
    "heartbeats_of_hibernating_bears": "np.append stood third, behind the step's own function, with a gain of 0; named since",
    "peptides_folded_by_sequence": "that the table could be made once was not said of tensors of lists; it is since, with the "
    "gain of the conversion alone: whether the list is made in the gap before it, the trace does not say",
    "mushrooms_from_a_forest_walk": "no rule knew frozen layers ahead of trained ones; one does since, 0.17 to 0.53",
    "parish_registers_searched": "a little less was saved than the loop takes",
    "juggled_balls_followed": "the loop was not found: most of its ops stand in a round several times; 0.17 to 0.50 since",
    "street_scenes_coloured": "no finding says what the masks of a loop over classes take",
    "collider_jets_tagged": "the gather on the host was counted in full, the copies behind it in part",
    "wallpapers_denoised": "only the copies of its parts were told; attention in parts is known since",
    "patents_by_claim": "first by the kernels that could be fused, with a part of the gain; the mask stands second",
    "monsoon_fields_foretold": "what is computed again was counted, not what autograd's checkpoints cost besides",
    "parcels_nudged_into_chutes": "the list is too long for its shapes to be recorded; its views are counted since",
    "chess_games_commented": "recorded without shapes; most of it is numpy, between the ops. A draw on the GPU is advised since",
    "retinas_layer_by_layer": "the labels' layout was named, not what makes them",
    "bridge_decks_in_wind": "a gather whose gradient is added without a sort was to be faster, and took longer; the number was "
    "that of another change, and the advice says since to time both",
    "cells_of_two_atlases_matched": "whether the costs of a round are those of the last one, a trace does not say",
    "mannequins_posed": "products that are summed were known over the last dimension only; over any one since",
    "tea_leaves_graded": "nothing was told; statistics of a table that a batch is gathered from are known since",
    "shorthand_spelled_out": "named third, behind the program's own function and the cells of its decoder",
    "gripper_follows_diffusion": "named second, without a number: the step was estimated far too short",
    "organs_outlined_in_scan": "only the argmax on the host was counted, not the copy that it needs; since then 0.67 to 0.91 is "
    "predicted",
    "dialects_told_by_ear": "the change was named first, but without a number; since then 0.46 to 0.82 is predicted",
    "power_grid_states_estimated": "the change was named second, without a number: the trace does not say how many of the values "
    "are zero",
    "recipes_written_by_model": "only the waits were counted, not the norms that they wait for",
    "letters_answered_for_office": "the gain was promised for a CUDA graph, which is another change; the program's step was "
    "estimated far too long",
    "portraits_painted": "most of it is numpy, between the ops; that less may be copied is told since",
    "letters_in_house_style": "recorded without shapes; adapters are known since, by their shapes",
    "statutes_read_at_once": "no rule knew attention in float32 beside layers of 16 bits; reported since, 0.28 to 0.58",
    "terrain_types_from_laser": "pairwise-distances is second; that several calls may be of the same points, it says since",
    "herbarium_sheets_named": "that a result is the same each time, the trace does not say",
    "quadruped_learns_to_trot": "the many small kernels are first, without a number",
    "mosaics_from_a_codebook": "more was saved than the one-hot tensor takes: its product went, too",
    "enzymes_with_masked_residues": "the wait is short, and what the CPU does behind it is in no row",
    "molecules_by_their_spectra": "named by chance; eigenvalues of general matrices are an entry since, 0.29 to 0.69",
    "parcels_priced_on_request": "named by chance: nothing says that the network is built anew",
    "poems_spelled_out": "an LSTM's prefix, recorded without shapes",
    "corals_counted_under_water": "recomputation was told on a GPU only; on a CPU it is since, 0.23 to 0.42",
    "shelves_watched_for_gaps": "more was saved than the norms take",
    "bearings_heard_wearing": "less was saved than the loop takes; its step without the profiler was estimated too long",
    "tenants_questions_routed": "the gaps between the ops are first; without stacks, what fills them is not known",
    "manuals_searched_for_answers": "a little less was saved than the loop takes",
    "greenhouse_vents_learn": "the gaps between the ops are first; without stacks, what fills them is not known",
    "heat_pumps_embedded": "named fourth, without a number",
    "aquifer_heads_from_equation": "many-small-ops stands second; that one call could give all derivatives was not told",
    "hall_echo_rendered": "nothing in a trace shows that numbers are denormal, but that equal ops take longer",
    "meters_read_in_short_epochs": "the wait for the loader is second, without a number; the workers' start was not told",
    "parcels_read_by_camera": "no finding says that most of what is normalized is cut away right after",
    "recipes_found_by_taste": "recorded without shapes, a trace has no types",
    "glyphs_drawn_against_critic": "the gradients that are thrown away were not told: the critic's are used",
    "whale_calls_told_apart": "named first, without a number",
    "ranker_tables_in_host_memory": "a little more was saved: fewer bytes are copied, too",
    "flow_divergence_by_dimension": "reported as nodes that run twice, without naming one batched backward pass",
    "short_clips_padded_to_thirty_seconds": "named second, without a number: how much of a batch is padding is in no row",
    "spectrogram_bands_masked": "reported as the program's function, in words that the pattern does not match",
    "wrist_windows_loaded": "only the gaps between the ops were counted, not the hundreds of copies",
    "tickets_low_rank_tuning": "a little less was saved than these gradients take",
    "old_policy_each_epoch": "that a result is the same each time, the trace does not say",
    "answers_states_of_every_layer": "whether anything uses the states, the trace does not say",
    "leaves_exact_gelu": "promised of all elementwise kernels fused, which the change does not do",
    "layouts_schedule_indexed_by_tensor": "nothing was to be gained",
    "citations_hops_from_the_left": "no finding is told of two large products in a row whose result has few columns",
    "scan_attributed_point_by_point": "named first, without a number",
    "spots_by_rolled_copies": "more was saved than the shifts take: the sums of their results went, too",
    "basket_articles_found_by_comparing": "no entry for a search by comparing with all",
    "sales_correlated_lag_by_lag": "more was saved than the shifts take: the products of their results went, too",
    "wells_validated_each_batch": "what a pass is for, the trace does not say",
    "cells_gathered_from_columns": "no entry for elements that are gathered along a distant dimension",
    "posts_collated_from_lists": "only the gaps between the ops were counted, not the hundreds of small tensors",
    "poses_solved_one_by_one": "the checks of the solves were counted, not the loop around them, which is reported second since",
    "colours_with_collection": "reported first as a library's function, 0.86 to 0.97, in words that did not name the collector",
    "characters_head_by_head": "by the shapes, one head may need another's result; heads are known since, 0.48 to 0.82",
    "t5_bias_each_layer": "no rule knew constants that each layer makes anew; reported since, 0.19 to 0.56: its step was "
    "estimated too long",
    "auroc_after_every_batch": "only the sorts were counted; that the work grows with each round is told since, 0.30 to 0.70",
    "heartbeats_new_workers": "no rule knew workers that start anew; reported since, 0.32 to 0.72",
    "muon_one_by_one": "the loop was taken for a model's layers; it is told since, 0.32 to 0.70",
    "llama_norms_written_out": "a little more was saved than the norms take",
    "voice_of_pointwise_convs": "only the copies were counted; convolutions of width one are an entry since, 0.00 to 0.23",
    "cells_found_in_turn": "the words did not say that the CPU could work while the GPU does; they do since",
    "birds_run_twice": "that a second forward pass is over the same batch, the trace does not say",
    "sentences_as_they_come": "named second, without a number: how much of a batch is padding is in no row",
    "calls_resampled_with_new_filters": "of the filters that are built anew, only the sines are counted",
    "options_elementwise": "what a compiler saves beyond the memory traffic (threads, vector instructions) is not counted",
    "ripples_in_new_tensors": "new tensors in each step are in no finding",
    "demand_quantile_by_quantile": "named by chance: checks-in-step",
    "roads_added_by_index": "only the sum by index is counted, not the rows that are gathered and scaled for it",
    "baskets_boundary_by_boundary": "many-small-ops, which names it, stands third",
    "phonemes_loss_frame_by_frame": "more is saved than the loop takes",
    "subtitles_token_by_token": "less was saved than the loop takes; its step without the profiler was estimated too short",
    "meters_with_norms_apart": "more was saved than the norms take",
    "ads_factorisation_pairs": "a triangle was mistaken for a mask, and named by chance; summed-products says 0.31 to 0.71 since",
    "molecules_padded_to_limit": "named first, without a number: how much of a batch is padding is in no row",
    "entities_viterbi_tag_by_tag": "less was saved than the loop takes",
    "horizons_head_by_head": "the loop stood third, without its backward pass and updates; it is first since, 0.45 to 0.80",
    "normal_modes_with_vectors": "the values alone take half of the decomposition's time; it promises 0.35 to 0.75 since",
    "films_rated_by_mask": "many-small-ops, which names it, stands third",
    "radar_in_complex128": "no rule knew this type; reported since, 0.18 to 0.55",
    "saliency_gradient_left_on": "no rule looks for gradients of inputs, which nobody reads",
    "heartbeats_projected_in_loop": "no rule knew the product that needs nothing of the round before; since then 0.15 to 0.47",
    "rents_penalised_by_hand": "no rule knew a penalty by hand; reported since, without a number, as no shapes were recorded",
    "faces_triplet_loop": "many-small-ops stood first, 0.55 to 0.86; its words, which did not match the pattern, have changed",
    "host_threads": "no row of a recording shows how many threads an op uses; the loop is reported, 0.78 to 0.95",
    "ensemble_one_by_one": "many-small-ops stands first, 0.67 to 0.91; the loop's layers may be a chain, by their shapes",
    "slides_without_workers": "named first, without a number: what workers take from the model on two cores is not replayed",
    "leaves_nchw": "the order of a convolution's input is told since, without a number",
    "rain_kriging": "a Cholesky factor's triangle was mistaken for a mask; factor-in-step is reported since, 0.14 to 0.46",
    "speech_ctc_items": "less was saved than the loop takes",
    "mixer_norm_written_out": "the norm scales before it divides, an order that no rule knew; told since, 0.17 to 0.53",
    "recordings_read_whole": "reported as input-bound, 0.40 to 0.79; no row of the recording shows what its loader reads",
    "texts_padded": "padding-mask stands third, without a number: how much of a batch is padding is in no row",
    "proteins_attention_by_hand": "named first; the prediction now also counts that the CPU launches less, and is 0.08 to 0.57",
    "transcriber_positions_on_cpu": "compute-on-the-cpu stands third; that the CPU gets ahead without it is not told",
    "forecast_whole_history": "a newer finding reports recomputed rows; launches limit the step, so it promises nothing",
    "story_without_cache": "a newer finding reports that earlier rows are computed again, 0.79 to 0.95",
    "reviews_padded": "named first, without a number",
    "tiles_oversubscribed": "no row of a recording shows how many threads an op uses",
    "citations_normalised_each_time": "no finding says that the same matrix is normalised again each time",
    "clicks_metrics_read": "collective-is-read stands first, in words that the pattern, written before, does not match",
    "words_hashed_unevenly": "the work that the late rank no longer does is done by the other rank",
    "scans_inflated_on_one": "the work that delays the rank moved to threads, where it still takes some CPU time",
    "tissue_sync_norm": "an op of SyncBatchNorm's own that waits for the GPU is named first",
    "anomaly_left_on": "it also keeps tracebacks in the forward pass, which no rule counted",
    "lstm_cells": "the cells' backward pass was not counted",
    "int8_dequantised": "without shapes nobody knows that the weights are of 8 bits",
    "eval_logits_to_host": "a step without the profiler took 1.7 times as long as a recorded one",
    "frozen_backbone": "which gradients nobody uses, the trace does not say",
    "prefill_all_logits": "no rule looked at what is used of a product",
    "guidance_two_passes": "half of the launches are gone, not all",
    "polling_consumer": "more lies between the ops than the polls",
    "dense_embedding_gradient": "the optimizer's pass over the table was not counted",
    "tiny_decoder_launches": "the estimate of its step is wide",
    "bn_unfolded": "nothing was to be gained: a folded convolution may add its bias in a kernel of its own",
    "neighbours_by_index": "nothing was to be gained",
    "upload_in_turn": "no rule looked at copies in the kernels' stream",
    "causal_mask_tensor": "only masks of numbers were known",
    "advantages_scan": "a loop over elements was no finding",
    "workers_each_epoch": "that the workers start anew, the trace does not say",
    "complex_fft_of_real": "no entry in the catalogue of changes",
    "crop_last": "what is cropped away later, the trace does not say",
    "bags_gathered": "no entry in the catalogue of changes",
    "long_filter": "no entry in the catalogue of changes",
    "backward_twice": "no rule looked at nodes that run twice",
    "replay_of_small_tensors": "without shapes nobody knows how long the list is",
    "covariance_inverted": "no entry for an inverse on a CPU",
    "requests_under_lock": "the profiler records no ops of the threads that serve",
    "weights_logged_each_step": "a part of what is logged was named",
    "items_one_by_one": "its step takes 1.5 to 3 ms, depending on the round",
    "private_sample_by_sample": "a loop over samples, whose rounds hold the model itself, is no finding",
    "reviews_slow_collate": "no rule named the loader",
    "forecaster_of_clones": "more was saved than the clones take",
    "sentences_padded_to_limit": "what is padding, the trace does not say",
    "rotary_each_layer": "the ops around the sines were not counted",
    "walkers_one_by_one": "what the program's functions save is not told",
    "field_coordinates_in_double": "without shapes nobody knows the types",
    "discriminator_without_detach": "which gradients nobody uses, the trace does not say",
    "cells_in_nchw": "less was saved than the copies of the layout take",
    "fields_one_hot": "nothing was to be gained",
    "cooccurrence_of_integers": "no entry for integer products",
    "clusters_by_difference": "no entry for distances by differences",
    "readings_row_by_row": "less was saved than the function takes",
    "gaps_filled_by_row": "less was saved than the function takes",
    "notes_tokenised_again": "less was saved than the time between the ops",
    "windows_stacked": "more was saved than the loop takes",
    "catalogue_normalised_again": "no entry for what is normalized at each use",
    "target_deepcopied": "the copy is Python's, between the ops",
    "planner_keeps_graph": "it costs time to keep the graph, and no rule predicts how much",
    "filterbank_each_clip": "less was saved than the function takes",
    "detect_class_loop": "less was saved than the waits and what they launch take",
    "dense_adjacency": "that a matrix is mostly zeros, the trace does not say",
    "clips_awaited_at_once": "what two threads would do at once is not played",
    "vocoder_weight_norm": "more was saved than the parametrizations take",
    "fraud_debug_messages": "the prediction counts the waits for the GPU; making the texts took longer than these",
    "requests_in_threads": "the trace does not show how long one batch with the requests of all threads would take",
    "birds_ten_crops_singly": "the reader reported the many launches; ten crops as one batch saved more than these cost",
    "weights_written_each_step": "no rule knows that files are written",
    "weights_rounded_by_channel": "the reader reported the loop, in words that the pattern does not match",
    "captions_cosine_broadcast": "named by the type of its matmul; less memory may have saved the rest",
    "enlarged_pictures_in_turn": "the prediction does not count that the copies then overlap with the next picture's work",
    "keyword_scattered_weights": "no entry for weights that cuDNN copies together",
    "genome_linear_attention": "no rule looks at the order of products",
    "streets_softmax_for_argmax": "no entry in the catalogue of changes (one was added since)",
    "sampler_numbers_on_gpu": "no entry for numbers that are tensors of one element",
    "style_features_again": "that a result is the same each time, the trace does not say",
    "actors_with_scaler": "no entry in the catalogue of changes (one was added since)",
    "arm_distributions_validated": "the Python time that the checks take was not counted",
    "plants_bias_before_norm": "the catalogue has no entry for a bias that the next BatchNorm removes",
    "layers_group_by_tensor": "no rule looks at an optimizer's groups",
    "forces_differentiable": "the trace does not show whether anything uses the graph of the backward pass",
    "caption_keys_each_token": "the matmuls were reported as a loop, not as the same matmul each time",
    "translation_smoothed_targets": "the reader reported the loss because of its large vocabulary, not because of its targets",
    "experts_on_all_tokens": "the trace does not show which part of a product the program uses",
    "losses_spinning_writer": "the profiler records no ops of a thread that only spins",
    "beams_reorder_encoder": "named behind two of the same lookups",
    "denoiser_promoted": "named behind two others",
    "moles_uploaded_as_float": "the prediction does not count that fewer bytes are copied",
    "curvature_by_hessian": "reported as many backward passes, without naming the one product that the program needs",
    "letters_half_on_cpu": "told without a number",
    "games_list_of_arrays": "without stacks nobody knows what runs between the ops",
    "pictures_blurred_by_square": "without shapes nobody knows the filter",
    "padded_reviews": "what is padding, the trace does not say",
    "distilled_encoder": "no rule looked at gradients that no optimizer uses (one does since)",
    "growing_cache": "its gain was too wide to be told",
    "average_of_weights": "named as launches of the whole step, of which these are few",
    "rollout_of_a_policy": "more of the host's work stays than a graph's launch",
    "spectra_in_line": "more lies between the ops than the spectra",
    "crops_of_a_frame": "named as a loop; as one batch it saved a little more than that",
    "table_of_items": "the entry was for a GPU's gradients alone (no longer)",
    "head_of_a_frozen_net": "no rule looked at gradients that no optimizer uses (one does since)",
    "neighbours_in_a_graph": "no entry for a square matrix (there is one since)",
    "only_one_thread": "how many threads there could be, the trace does not say",
    "categories_of_a_table": "named; the products with the zeros were not counted",
    "words_by_one_hot": "nothing was to be gained",
    "frames_normalised_on_host": "the prediction does not count that fewer bytes are copied",
    "records_decoded_in_line": "more lies between the ops than the decoding",
    "edges_transformed": "no rule looked at products of gathered rows (one does since)",
    "memory_projected_each_token": "no rule looked at large products between small ones (one does since)",
    "average_by_parameter": "named as launches of the whole step, of which these are few",
    "sentences_padded_to_maximum": "what is padding, the trace does not say",
    "clicks_as_one_hot": "named; the products with the zeros were not counted",
    "sines_built_each_call": "reported at its function, in words that the pattern does not match",
    "tracks_on_one_thread": "how many threads there could be, the trace does not say",
    "flow_diagonal_matrices": "what is in a matrix, the trace does not say",
    "speech_durations_in_loop": "less was saved than the loop takes",
    "image_feed": "named as a function and as work of the CPU, in words that the judge, written before, does not take",
    "confusion_counts": "reported as a loop, 0.64 to 0.90, in words that the pattern does not match",
    "caption_decoding": "named first, 0.03 to 0.32, in words that the judge does not take",
    "expert_layers": "the waits were named, and not the experts' loop",
    "guided_denoising": "named as launches of the whole step, half of which are gone",
    "crops_and_flips": "named as launches of the whole step, of which the loop's are a part",
    "ppo_advantages": "named as launches of the whole step; the loop stood second, 0.34 to 0.72",
    "sign_momentum": "named as launches of the whole step; the loop stood third, 0.11 to 0.41",
    "feature_export": "what a thread would do meanwhile is not played; what lies between the ops was named, 0.33 to 0.64",
    "masked_language_model": "without shapes nobody knows of a mask",
    "perceptual_loss": "in the network whose weights need no gradients, the gradients of its inputs are still needed",
    "point_matching": "its solver waits for more than the checks take",
    "request_threads": "that the same layers run for each request is not told",
    "next_word": "nothing was to be gained: the host was the limit",
    "null_collector_off": "what else lies between the ops, the trace does not say",
}


def _step(when: str, measured_us: float, ends: list[float]) -> tuple[str, float, list[float], bool | None]:
    return when, measured_us, ends, ends[0] <= measured_us <= ends[1] if ends else None


def _reached(gpu: list[Entry]) -> list[str]:
    """Return what of the older ledger's aims was reached on a GPU."""
    some = [entry for entry in gpu if not entry.brings_nothing]
    none = [entry for entry in gpu if entry.brings_nothing]
    told = [entry for entry in some if entry.told is not None]
    steps = [step for entry in gpu for step in entry.steps()]
    known = [step for step in steps if step[3] is not None]
    more = [step for entry in gpu for step in entry.steps_with_more()]
    known_of_more = [step for step in more if step[3] is not None]
    widths = sorted((ends[1] - ends[0]) / ends[1] for _, _, ends, _ in known)
    first = gpu[0].kept
    return [
        OLDER,
        _where(first, gpu[0].kept["before"]["device"]),
        "",
        "| | to reach | reached |",
        "|---|---|---|",
        f"| the change is named by the first {FIRST} findings, of {len(some)} that bring more than {NOTHING:.0%} | 80% | "
        f"{_count(some, lambda e: e.place is not None and e.place <= FIRST)} |",
        f"| the measured gain falls within the predicted range (± {TOLERANCE:.2f}), of {len(told)} with a prediction | 80% | "
        f"{_count(told, lambda e: e.is_inside)} |",
        f"| at most {PROMISE:.0%} is promised, of {len(none)} that bring nothing | all | "
        f"{_count(none, lambda e: e.told is None or e.told[1] <= PROMISE)} |",
        f"| the step without the profiler lies in the estimate, of {len(known)} that have one (of {len(steps)}) | 80% | "
        f"{_count(known, lambda step: step[3])} |",
        f"| the same where stacks or memory were recorded, too, of {len(known_of_more)} that have one (of {len(more)}) | 80% | "
        f"{_count(known_of_more, lambda step: step[3])} |",
        "",
        f"{sum(e.told[0] < 0.005 for e in told if e.told)} of the {len(told)} predicted ranges begin at 0. "
        f"{sum(e.gain > e.told[1] for e in told if e.told)} of the {len(told)} measured gains exceeded the upper end of their "
        f"prediction, by at most {max(e.gain - e.told[1] for e in told if e.told):.2f}. The time of a step is predicted as "
        f"a range, too: none is wider than 30% of its upper end, and half are narrower than {widths[len(widths) // 2]:.0%}. For "
        "runs that are not limited by the GPU, "
        "[they are wider](profiler_cost.md#when-nobody-measured).",
        "",
    ]


def document(kept: dict[str, dict[str, Any]]) -> str:
    """Return the whole of docs/advice.md."""
    gpu = [Entry(name, values) for name, values in kept["h200"].items()]
    cpu = [Entry(name, values) for name, values in kept["cpu"].items()]
    lines = [
        TITLE,
        *_together(kept),
        "",
        'Set by set (a number with "before" is that of an earlier version of the reader, on the same files):',
        "",
        *_judged(kept),
        "",
        SCORED,
        "## The ledger",
        "",
        *_reached(gpu),
        *_with_more(gpu),
        "",
        "## Every pair",
        "",
        *_table(gpu),
        "",
        "Where the reader is wrong, or says nothing:",
        "",
        *_wrong(gpu),
        "",
        "## What limits the run",
        "",
        *_verdicts(gpu),
        "",
        "## On a CPU",
        "",
        _where(cpu[0].kept, "a CPU with 2 cores (x86-64, AMD EPYC, AVX2 without AVX-512)"),
        "",
        *_on_cpu(cpu),
        "",
        *_table(cpu),
        "",
        TRIED,
    ]
    return "\n".join(lines) + "\n"


def unseen_document(kept: dict[str, dict[str, Any]]) -> str:
    """Return the whole of docs/advice_unseen.md."""
    intro = UNSEEN.replace("{by_a_reader}", "\n".join(_by_a_reader(kept)))
    return "\n".join([intro, *_unseen(kept)]).replace("\n\n\n", "\n\n") + "\n"


# Measured by hand, once: no rule had seen these programs, and what was found wrong has been mended since.
TRIED = """## Tried as a new user would

We took three programs that no rule had seen, and put faults into them on purpose. We recorded each program, changed it as the
first screen says, and timed it without the profiler, alternating between before and after, in five rounds (NVIDIA H200, torch
2.11.0+cu130, 2026-11-23).

The third column of the table is the range that the reader predicted before the change, and the last column the range that it
predicts now. A measured gain is bold if it lies outside the range of the third column, or if no finding named the change.

| program | change (place) | told | brought | now |
|---|---|---|---|---|
| Llama, 8 layers (transformers), training | unfused-attention (1): attention by sdpa | 0.32 to 0.35 | 0.35 | 0.32 to 0.35 (1) |
| | unfused-pointwise (2): F.rms_norm | 0 to 0.26 | 0.11 | 0 to 0.48 (2) |
| | unfused-pointwise (2): torch.compile | 0 to 0.26 | **0.49** | 0 to 0.48 (2) |
| | mask-rebuilt (3): built once | 0.09 to 0.10 | **0.19** | 0.03 to 0.09 |
| EfficientNet-B0 (torchvision), inference | many-calls (1): a CUDA graph | 0 to 0.56 | 0.02 | 0 to 0.24 (3) |
| | blocking-copy (3): pinned, non_blocking | 0 to 0.11 | 0.08 | 0 to 0.11 (4) |
| | (not named): images normalized on the GPU | - | **0.69** | 0.25 to 0.57 (1) |
| ConvNeXt-tiny (timm), training | many-small-kernels (1): a CUDA graph | 0 to 0.37 | 0.36 | 0 to 0.37 (2) |
| | sync-in-step (2): norms summed on the GPU | 0.12 to 0.28 | **0.05** | 0.12 to 0.28 (1) |

The plain steps of the three programs (without the profiler) took:

- Llama: 65.3 ms (estimated: 69.5 to 75.6 ms; one of four recorded steps was slow)
- EfficientNet: 25.9 ms (estimated: 20.1 to 24.7 ms)
- ConvNeXt: 31.0 ms (estimated: 23.8 to 36.3 ms)

The EfficientNet led to the finding compute-on-the-cpu. The gain that this finding predicts is still too low: after the change
the images are copied as bytes, and the copy overlaps with computing.

Two measurements vary a lot. One is Llama before the change of its mask: compared with the first measurement of the same program,
the change saves 0.09. The other is ConvNeXt without its .item() calls: depending on the round, the change saves -0.16 to 0.11."""

TITLE = """# Does the advice hold?

[Findings](../read-trace/docs/reading.md) name a change, and predict which share of a step it saves when the program
runs without the profiler. This page shows what such changes saved when they were measured.

The changes were measured on pairs. A pair is a small program, or a model of torchvision or transformers, before and after one
change that tuning guides recommend. Both versions were timed without the profiler and, separately, recorded with it. Guess
first: which of the changes in the tables below save nothing?

The reader finds such changes by rules. If rules were written with some pairs in view, their score on these pairs says little
about other programs. So we also measured pairs that were written without sight of any rule. These are marked "not seen". They
were recorded once and scored once (2026-11-26 to 28). They were recorded with torch 2.11; on a CPU, the eighth set and the
later ones with torch 2.15:
"""

SCORED = """The columns of these tables:

- "save something": the change saves more than 3%, and the writer of the pair did not mark it as one that brings nothing. Some
  of the pairs that are marked in this way were measured above 3%, most of them because of noise.
- "named by the first two": of the pairs that save something, those whose change is named by one of the first two findings.
- "gain inside": the measured gain falls in the predicted range, ± 0.03.
- "interval score": the width of the predicted range, plus ten times the distance between the range and a measured gain outside
  it. A low score is good. The score is at most 1, and without a prediction it is 1. If the range is "0 to 0.9" and contains the
  gain, the score is 0.9.
- "too much promised": of all other pairs (which save 3% at most), those for whose change a gain above 5% is predicted. Other
  changes may be promised more in the same program.
- "plain step held": the estimate of the plain step (a step without the profiler) contains the measured time.

`uv run benchmarks/advice/score.py FOLDER` prints the same for your own pairs, if the folder says how each change is named; its
`--help` says what the folder holds. Without names, the first finding with a gain is judged.

Before each new set was written and scored, the rules were corrected on the earlier sets. So a score of today's rules on those
earlier sets says nothing. [Another page](advice_unseen.md) lists every pair that was not seen: what the reader said, why, if it
was wrong, and how each set was made. Whether a finding names a change is told by a pattern of words. That is narrow, so the
other page also has the latest eight sets as somebody judged them who did not know the reader.

The predictions and steps were made like this:

- The ranges of the predicted gains were fitted to all sets before the seventh; from the seventeenth set on, to all before it
  (`uv run read-trace/benchmarks/bands.py`).
- Since the third set, the estimated interval of a plain step is twice as wide on hosts without prices of their own (a price is
  what the profiler costs per op or call). The fourth set's plain steps have these intervals.
- From the fourth set on, one repetition counts as a step where a recording has no step marks.
"""

UNSEEN = """# Every change that no rule had seen

These are the pairs of the sets marked "not seen" in [the page on the advice](advice.md), which says what the columns mean. What
the reader told wrong stays here, with why, as far as we know.

Each set was written and scored after the rules had been corrected with the earlier sets in view. So a score of today's rules on
those earlier sets says nothing. The third set was to have faults other than those of the first two. The fourth to
thirty-first set (2026-11-27 to 29) were to have the faults that tuning guides, reviews and forums name most often. These are
closer to what people meet.

Parts of some sets were seen:

- Of the fifth set, one line was seen before the set was scored, in a linter's message.
- Of the sixth set, the names of the pairs were seen, but only after the rules had been written.
- Of the seventh set, the names of three pairs and two lines of a program were seen. No rule was changed after that.
- Of the eighth set, the names of a dozen pairs were seen.
- Of the ninth to eleventh set, nothing was seen before they were scored. Of the twelfth, a list of its faults was seen. After
  that, rules were changed only where a reviewer, who had not seen the set, had found them wrong.

The eighth set's pairs on a GPU were recorded and scored late (2026-11-28), after the rules had been corrected with the CPU's
pairs of the eighth to tenth set in view. The ninth and tenth set have no pairs on a GPU. Then the rules were corrected with the
eighth set's pairs on a GPU in view, and the eleventh set was recorded and scored. After that, a model that knew the newest rules
wrote some fifty programs for which their advice would be wrong. They told it for 33 of them. The rules were changed: now they are
silent on 21 of these, and on the other 12 they say on what the advice depends. With the eleventh set's pairs on a CPU in view, 8
of their 9 changes are named now and 5 gains are inside, with a score of 0.61 (recorded anew, 2026-11-28); this says nothing about
other programs. The twelfth set was recorded and scored after that. One change of it was named only because "freeze" stood in the
words of other advice (gc.freeze()); it counts as not named. Of the 8 that are named, one is by the loader's workers in general,
where the fault is that they start anew (`meters_read_in_short_epochs`). Of its 16 plain steps, 5 are told too long
(the low end is up to 2.1 times the measured step) and 3 too short (the high end is 0.84 of it at least).

The thirteenth and fourteenth set are by two writers who saw no rule. The thirteenth set's pairs on a GPU were scored first, and
two rules were corrected with them in view; then the other three parts were recorded and scored at once, without a look at a
program. On a GPU 12 of 13 changes are named in the one, and 5 of 13 in the other: sets of this size differ much. Of all four
parts, 29 of 45 are named and 21 gains inside. With them in view, 33 are named now and 26 inside; this says nothing about other
programs. One pair that should save something saved nothing on the day of the recording (`hotel_reviews_graded`), and a null saved
0.14 (`frogs_heard_at_night`): two cores are noisy.

The fifteenth set is by a third such writer (2026-11-28), and was recorded and scored once, before a rule was changed. One of its
faults saved nothing: an op whose gradient is added by atomic operations took longer than the one that sorts
(`bridge_decks_in_wind`). Of all 22 changes that save something, 15 are named by the first two findings (68%), and 12 gains are
inside (55%). With the set in view, 19 are named now and 17 gains are inside, with scores of 0.53 and 0.38; this says nothing
about other programs. Before it was scored, the intervals of plain steps on CPUs had been made wider
([docs/profiler_cost.md](profiler_cost.md)): 11 of 14 hold.

The sixteenth set is by a fourth such writer (2026-11-28), and was recorded and scored once, before a rule was changed. Of its
23 changes that save something, 16 are named by the first two findings (70%), and 12 gains are inside (52%). Of the nine nulls,
nothing is promised of the change that was made (of other changes, a gain may be told); 28 of 32 plain steps hold. The score of
all is 0.64. On the H200 alone, 11 of 13 are named (85%), and 8 gains are inside (62%). With
the set in view, 21 are named now and 15 gains are inside, with scores of 0.52 and 0.60; this says nothing about other programs.

The seventeenth and eighteenth set are by two more such writers (2026-11-28), and each was recorded and scored once. The
seventeenth was scored after the ranges of the gains had been fitted anew to all sets before it, and before a rule was changed.
Of its 22 changes that save something, 16 are named by the first two findings (73%), and 12 gains are inside (55%), with a score
of 0.65; 27 of 32 plain steps hold, and of one null 4% to 14% was promised. Then five rules were written with it in view. The
eighteenth, on the H200 alone, was scored after that: of 13 changes 11 are named (85%), and 9 gains are inside (69%), with a
score of 0.54; nothing is promised of the nulls, and 14 of 18 plain steps hold. One of the new rules was first in one of its
programs, with a range that holds what was measured; its words do not match the pair's pattern, and it counts as not named
(`antiques_named_without_training`).

The nineteenth set is by a seventh writer (2026-11-28), and was recorded and scored once, after all of that and after the newest
rules had been corrected by an attack on them. Two changes were named by chance, and count as not named and without a
prediction: a finding about sizes said "padded" of something else (`complaints_by_department`), and one about batch norms was
taken for one about vectors (`shoes_that_look_like_these`). On the H200, 10 of 11 changes that save something are named by the
first two findings, and 8 gains are inside, with a score of 0.46; on two cores 4 of 7 are named, and 4 gains inside, with 0.62.
Together that is 14 of 18 (78%), 12 (67%) and 0.53. No more than 1% is promised of the seven nulls; one change that should have
saved something cost time, and was promised 1% to 49% (`soups_and_stews_written_down`). Of the 27 plain steps, all are told, and
24 hold. A set of this size says little by itself: of the three sets of that day together, 41 of 53 changes are named (77%), and
33 gains are inside (62%), with a score of 0.58; 65 of 77 plain steps hold (84%).

The twentieth set is by an eighth writer (2026-11-29), and was recorded and scored once, before any rule was changed. Three
changes were named by chance (by words like "Python loop" in advice on something else), and count as not named and without a
prediction. On the H200, 8 of 12 changes that save something are named by the first two findings, and 6 gains are inside, with a
score of 0.64; on two cores 6 of 8 are named, and 4 gains inside, with 0.67. Of one of the seven nulls 0% to 10% was promised.
All 27 plain steps are told, and 25 hold. Then we had lists of 250 faults written without sight of the rules, had 130 small
programs made of these, and looked which of them the reader did not name: of 70 on an H200 it named 44 by the first two
findings, of 60 on two cores 38, by the programs' patterns. After rules were written and corrected with these in view, it names
48 and 49. What each program would save was not measured.

The twenty-first set is by a ninth writer (2026-11-29), and was recorded and scored once, after that. Four findings matched a
pair's pattern by chance ("a larger batch", "Python loop", and "in place" of a null), and count as not named and without a
prediction. On the H200, 10 of 12 changes that save something are named by the first two findings, and 7 gains are inside, with a
score of 0.53; on two cores 6 of 8 are named, and 2 gains inside, with 0.82. Nothing is promised of the seven nulls. All 27 plain
steps are told, and 18 hold. Of both sets of that day together, 30 of 40 changes are named (75%), 19 gains are inside (48%), with
a score of 0.65; 43 of 54 plain steps hold (80%). So the changes are named as often as before, and the ranges hold less.

The twenty-second set is by a tenth writer (2026-11-29), and was recorded and scored once, by the rules of a commit before it was
recorded. Sentences of 25 of its pairs were seen before, in a linter's message; the rules of the commit before that message give
the same numbers. No finding matched a pattern by chance but one (`aurora_frames_tinted`: that of the second finding counts, not
that of the first), and one null was promised 2% to 6% for its change in words that its pattern does not match; that counts. On
the H200, 12 of 13 changes that save something are named by the first two findings, and 12 gains are inside, with a score of
0.34; on two cores 10 of 13 are named, and 8 gains inside, with 0.56. Together that is 22 of 26 (85%), 20 (77%) and
a score of 0.45. Of the six nulls, one was promised more than 5%. All 32 plain steps are told, and 30 hold. Of the
three sets of that day together, 52 of 66 changes are named (79%), 39 gains are inside (59%), with a score of 0.57; 73 of 86 plain
steps hold (85%). A set of this size says little by itself. Rules were written and changed afterwards with this set in view.

The twenty-third set, for two cores alone, is by an eleventh writer (2026-11-29), and was recorded and scored once, after the
rules had been corrected with the twenty-second set in view. One finding matched a pattern by chance
(`shipwrecks_under_the_sonar`), and counts as not named. Of 13 changes that save something 6 are named by the first two findings
(46%), and 4 gains are inside (31%), with a score of 0.78; nothing is promised of the three nulls, and 12 of 16 plain steps
hold. Of both sets, 28 of 39 changes are named (72%), and 24 gains are inside (62%), with a score of 0.56. So what the
twenty-second set showed on two cores was chance in part: its faults were nearer to those that the rules know.

The twenty-fourth set (for the H200) and the twenty-fifth (for two cores) are by two more writers (2026-11-29), and were
recorded and scored once, by the rules of a commit before they were recorded. Of one pair, a finding matched the pattern by chance
(`molecule_energies_fitted`). Of both, 17 of 23 changes that save something are named by the first two findings (74%), and 13
gains are inside (57%), with a score of 0.61. Of the nine others, one was promised more than 5%: a program that polls a queue
and sleeps in between, which the change (a blocking get) made slower. All 32 plain steps are told, and 26 hold.

The twenty-sixth set (for the H200) and the twenty-seventh (for two cores) are by two more writers (2026-11-29), and were
recorded and scored once, after the rules had been corrected with the twenty-fourth and twenty-fifth in view. Two findings
matched a pattern by chance (`payment_network_accounts`, `street_depth_pictures`), both of pairs whose change saves nothing.
Of both sets, 16 of 20 changes that save something are named (80%), and 13 gains are inside (65%), with a score of 0.57;
nothing is promised of the eight others. 27 of 28 plain steps are told, and 25 hold. One change is told first in words that
its pattern does not match (`traffic_camera_clips`), and counts as not named; of another (`land_cover_tiles`), the op is
named that the change makes smaller, with other advice.

The twenty-eighth and twenty-ninth set, and the thirtieth and thirty-first, were made and scored in the same way
(2026-11-29), one after the other, the even ones for the H200. Of the first two together, 14 of 20 changes that save
something are named by the first two findings (70%), and 12 gains are inside (60%), with a score of 0.59; nothing is promised
of the eight others. Of the last two, 17 of 18 are named (94%), and 11 gains are inside (61%), with a score of 0.54; of the
eight others two were promised more than 5%, one of which saved 10%. All 54 plain steps are told, and 47 hold. In the
thirtieth set a finding matched a pattern by chance (`citations_between_authors`).

A pattern is narrow: it misses right advice in other words, and takes wrong advice for right by chance. So a model that knew
neither the reader nor its rules read the changes and the first six findings of all 114 pairs of the twenty-fourth to
thirty-first set, and said which finding, if any, names the change (`benchmarks/advice/by_a_reader.json`). The table has what
follows from that.

{by_a_reader}

A model that knew none of the twenty-second set's programs read the first screens of ten of them (seven on the H200), and said
what to change first. In nine it chose the change that was made; in five of these its own guess of the gain held what was
measured, give or take 3%. In the tenth (a quantile that sorts) it named that change second. In four of the nine it chose the
change against the screen's first line: one told a smaller gain of another change, one was generic, one named a riskier change,
one the cure of another fault. In six, one cause was told as two or three findings. Since then, a finding says of which earlier
one it is a part, and three of the four lines are right.

A model that knew none of the programs of the nineteenth set read the first screens of ten of them (on the H200), and said what
to change first. In eight it chose the change that was made; in seven of these its own guess of the gain held what was measured,
give or take 3%. In the other two (a call of torch.cuda.empty_cache(), and padding) it named that change second.

Among the misses of the sixth set are four pairs for which the reader reported the launches of the whole step, which a CUDA
graph would remove. In three of these four, it named the loop or the optimizer, too, but further down. Since then, the reader
names it first. For three other pairs, it named the change, but in words that the pair's pattern does not match
(`score.py` recognizes a change by such a pattern).

We tried ten programs of the fifth set (seven on a GPU) as a new user would. A language model that did not know the programs read
the first screen of each, and said what to change first:

- In all seven programs where the measured change saves something, the model chose that change. In five of them, the screen that
  the model saw named the change; in the other two, only the ops on the screen pointed to it. In those two programs, no finding
  named the change (padding in one, a matmul with the same inputs for each token in the other), and the screen put a different
  change first.
- In the other three programs, it chose no
  change once, and an unmeasured change twice.

Four of the 23 jobs have a straggler by design, and the reader now names one in exactly these four. The earlier reader named a
straggler in 14 jobs. The reader now compares the ops of the late rank with those of another rank. If both run the same ops, and
the late rank is later throughout, or not in every step, the host may be slow, rather than a line of the program.

For ten jobs, the change does not help: the changes of five jobs save nothing by design, and the changes of five more made them
no faster when measured. Three of these five were slower by a third or more. For two of the ten jobs, more than 5% was promised.
"""

OLDER = """`uv run benchmarks/advice/record.py FOLDER` measures the pairs of
[benchmarks/advice/pairs.py](../benchmarks/advice/pairs.py) on your machine. Each pair has a process of its own, which
alternates between the pair's program before the change and the one after it, in five rounds.
`uv run benchmarks/advice/ledger.py FOLDER NAME` reads the recordings.

The numbers below are from the reader of 2026-11-24. Keep in mind:

- The upper end of its predictions assumed that the change is made as well as it can be. If a prediction began at 0, it read "up
  to" the upper end.
- Its estimates of plain steps used [older prices](profiler_cost.md).
- Its rules were written with these pairs in view.
- One measurement alone proves little. A day before, on the same kind of machine with the same rules, the first four numbers were
  23 of 27 (85%), 21 of 27 (78%), 8 of 8 and 60 of 63 (95%).
"""


def _together(kept: dict[str, Any]) -> list[str]:
    """Return how far the advice holds on all sets that were not seen, and on the latest of them."""
    lines = [COLUMNS.format("not seen"), LINE]
    for where, end in (("on an H200", "_gpu"), ("on two cores", "_cpu")):
        every = [kept[key] for key in SETS if key.startswith("unseen") and key.endswith(end) and key in kept]
        for words, sets in ((f"all {len(every)} sets {where}", every), (f"the latest {LATEST} of these", every[-LATEST:])):
            lines.append(_summed(words, sets))
    return lines


def _by_a_reader(kept: dict[str, Any]) -> list[str]:
    """Return the same of the sets of which somebody said which finding names each change, in place of a pattern."""
    lines = [COLUMNS.format("sets, judged by a reader"), LINE]
    rows = {key: {name: one | said[name] for name, one in kept[key].items()} for key, said in kept[BY_A_READER].items()}
    groups = {SETS[key][0].removeprefix("**not seen**, "): [key] for key in rows}
    for words, ending in (("all on an H200", "_gpu"), ("all on two cores", "_cpu"), ("all", "")):
        groups[words] = [key for key in rows if key.endswith(ending)]
    for words, keys in groups.items():
        lines.append(_summed(words, [rows[key] for key in keys]))
    return lines


def _summed(words: str, sets: list[dict[str, Any]]) -> str:
    """Return how far the advice holds on these sets together."""
    found = scores({(n, name): one for n, rows in enumerate(sets) for name, one in rows.items()})
    some = found["some"]
    cells = [
        f"{some} of {found['pairs']}",
        f"{found['named']} ({found['named'] / some:.0%})",
        f"{found['inside']} ({found['inside'] / some:.0%})",
        f"{found['score']:.2f}",
        f"{found['promised']} of {found['nulls']}",
        f"{found['plain_inside']} of {found['plain_told']} ({found['plain_inside'] / found['plain_told']:.0%})",
    ]
    return f"| {words} | {' | '.join(cells)} |"


def _judged(kept: dict[str, Any]) -> list[str]:
    """Return how far the advice holds on each set, beside the reader of before."""
    lines = [COLUMNS.format("set"), LINE]
    for key, (name, before) in SETS.items():
        if key not in kept:
            continue
        found = scores(kept[key])
        some = found["some"]
        cells = [
            f"{found['named']} ({found['named'] / max(some, 1):.0%}); {before[0]} before",
            f"{found['inside']} ({found['inside'] / max(some, 1):.0%}); {before[1]} before",
            f"{found['score']:.2f}; {before[2]:.2f} before",
            f"{found['promised']} of {found['nulls']}; {before[3]} before",
            f"{found['plain_inside']} of {found['plain_told']}; {before[4]} before",
        ]
        lines.append(f"| {name} | {some} of {found['pairs']} | {' | '.join(cells)} |")
    return lines


def _unseen(kept: dict[str, Any]) -> list[str]:
    """Return every pair that no rule had seen, and why it is wrong where it is."""
    lines = []
    for key, (name, _) in SETS.items():
        if key not in kept or "unseen" not in key:
            continue
        title = name.removeprefix("**not seen**, ")
        lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
        lines += ["| change | saved | told | score | named by (place) |", "|---|---|---|---|---|"]
        for pair, one in sorted(kept[key].items(), key=lambda item: -item[1]["saved"]):
            told = f"{one['told'][0]:.2f} to {one['told'][1]:.2f}" if one["told"] else "-"
            named = f"{one['slug']} ({one['place'] or '-'})" if one["slug"] else "-"
            score = f"{interval_score(one):.2f}" if one["saved"] > SOME and not one["null"] else "-"
            change = one["change"].replace("|", "/")
            lines.append(f"| {change} (`{pair}`) | {one['saved']:.2f} | {told} | {score} | {named} |")
        wrong = [
            f"- `{pair}`: {WHY[pair]}"
            for pair, one in kept[key].items()
            if pair in WHY and (one["told"] is None or distance(one) > TOLERANCE or not one["place"])
        ]
        if wrong:
            lines += ["", "Where the reader did not name the change, predicted nothing, or missed by more than 0.03:", "", *wrong]
    return lines


def _with_more(entries: list[Entry]) -> list[str]:
    """Return how far the advice holds where more was recorded: those numbers alone that the table above has of shapes."""
    lines = ["The step before the change was also recorded with stacks, and with memory. For the same pairs, that gives:", ""]
    for what in MORE:
        every = [entry.recorded_with(what) for entry in entries]
        some, none = ([e for e in every if e.brings_nothing is nothing] for nothing in (False, True))
        told = [e for e in some if e.told is not None]
        lines.append(
            f"- with {what}: named {_count(some, lambda e: e.place is not None and e.place <= FIRST)}, inside "
            f"{_count(told, lambda e: e.is_inside)}, at most {PROMISE:.0%} promised "
            f"{_count(none, lambda e: e.told is None or e.told[1] <= PROMISE)}."
        )
    return lines


def _on_cpu(entries: list[Entry]) -> list[str]:
    """Return how far the advice holds without a GPU."""
    some = [entry for entry in entries if not entry.brings_nothing]
    told = [entry for entry in some if entry.told is not None]
    known = [step for entry in entries for step in entry.steps() if step[3] is not None]
    named = _count(some, lambda e: e.place is not None and e.place <= FIRST)
    inside, steps = _count(told, lambda e: e.is_inside), _count(known, lambda step: step[3])
    bounds = sum(e.told is not None and max(e.told[0], 0.0) < 0.005 for e in told)
    return [
        f"- Of the changes that save more than {NOTHING:.0%}, the first {FIRST} findings name {named}.",
        f"- Of the predicted ranges of gains, {inside} contain the measured gain, and {bounds} begin at 0.",
        f"- Of the estimated times of a step, {steps} contain the measured time.",
        "",
        "Step times on a CPU vary, since other programs use the same cores and caches. Two other measurements were made with the",
        "rules of that time, and without the pairs `cpu_double` and `cpu_optimizer`. They gave:",
        "",
        "- two cores of a Xeon (AVX-512; torch 2.15, 2026-11-24): 8 of 10 changes named, 7 of 7 gains and 15 of 19 steps inside",
        "- 16 cores (torch 2.11, 2026-11-23): 8 of 9 changes named, 6 of 7 gains and 14 of 18 steps inside",
    ]


def _where(kept: dict[str, Any], device: str) -> str:
    return f"Measured on {device}, torch {kept['torch']}, {kept['date']}."


def _count(entries: list[Any], test: Any) -> str:
    found = sum(bool(test(entry)) for entry in entries)
    return f"{found} of {len(entries)} ({found / max(len(entries), 1):.0%})"


def _ms(us: float) -> str:
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} µs"


def _table(entries: list[Entry]) -> list[str]:
    lines = [
        "| change | before | after | brought | named by (place) | told | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    for e in sorted(entries, key=lambda entry: -entry.gain):
        named = f"{e.finding[0]} ({e.place})" if e.finding else "-"
        told = f"{max(e.told[0], 0):.2f} to {e.told[1]:.2f}" if e.told else "-"
        inside = {None: "-", True: "yes", False: "**no**"}[e.is_inside]
        times = f"{_ms(e.before_us)} | {_ms(e.after_us)} | {e.gain:.2f}"
        lines.append(f"| {e.pair.change} (`{e.name}`) | {times} | {named} | {told} | {inside} |")
    return lines


def _wrong(entries: list[Entry]) -> list[str]:
    lines = []
    for e in entries:
        faults = []
        if not e.brings_nothing and (e.place is None or e.place > FIRST):
            faults.append("not named by the first two" if e.place else "not named")
        if e.is_inside is False:
            faults.append("the measured gain is outside of the predicted range")
        if e.brings_nothing and e.told and e.told[1] > PROMISE:
            faults.append("promised, and brings nothing")
        for when, measured_us, ends, inside in (*e.steps(), *e.steps_with_more()):
            if inside is False:
                faults.append(f"the step ({when}) takes {_ms(measured_us)}, estimated: {_ms(ends[0])} to {_ms(ends[1])}")
        if faults:
            why = f" ({NOTES[e.name]})" if e.name in NOTES else ""
            lines.append(f"- `{e.name}`: {'; '.join(faults)}{why}.")
    return lines


def _verdicts(entries: list[Entry]) -> list[str]:
    lines = [
        "For these recordings, the verdict differs without the profiler. The last column is how long the GPU is busy, divided by",
        "the measured plain step:",
        "",
        "| recording | recorded | without the profiler | GPU busy / plain step |",
        "|---|---|---|---|",
    ]
    for e in entries:
        for when, measured_us, _, _ in e.steps():
            kept = e.kept[when]
            if kept["verdict"] != kept["recorded_verdict"]:
                share = f"{kept['gpu_busy_us'] / measured_us:.2f}"
                lines.append(f"| {e.name}, {when} | {kept['recorded_verdict']} | {kept['verdict']} | {share} |")
    hidden = [
        f"{e.name}, {when} ({e.kept[when]['gpu_busy_us'] / measured_us:.2f})"
        for e in entries
        for when, measured_us, _, _ in e.steps()
        if e.kept[when]["verdict"] not in ("gpu-bound", "copy-bound") and e.kept[when]["gpu_busy_us"] > 0.85 * measured_us
    ]
    others = ", ".join(hidden) or "none"
    return [*lines, "", f"These are still called overhead-bound, though the GPU is busy for more than 85% of the step: {others}."]


def read_kept() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(HERE.glob("*.json"))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("name", nargs="?")
    args = parser.parse_args()
    if args.folder is not None:
        if args.name is None:
            parser.error("give what is read of FOLDER a NAME: h200 or cpu")
        keep(args.folder, args.name)
    kept = read_kept()
    write_all({DOCS / "advice.md": document(kept).encode(), DOCS / "advice_unseen.md": unseen_document(kept).encode()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
