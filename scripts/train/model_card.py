# SPDX-License-Identifier: Apache-2.0
"""README.md of a trained model: what it is, what it was trained on, what was measured, how to train it again.

All numbers come from the stored files, the training log and the measurements handed in.
"""
import csv
import json
import textwrap

from checkpoint import WEIGHTS_FILE, load_tensors

LICENCE = """## Licence

The weights were trained on the standard library of Python 3.11 and its documentation alone, which come under the
Python Software Foundation License; structured text was made from the library by a script. No other text, and no
other model, was used.
"""

DATA = """## Data

| domain | what | share of training tokens | held out |
|---|---|---|---|
| code | Lib/**.py and the C headers of Python 3.11 | 55 % | 1 % of the files |
| prose | the documentation's sources, markup taken off | 30 % | 4 % of the files |
| structured | JSON, CSV, XML, TOML and token tables made from the library | 15 % | what was made of held-out files |

Files are held out whole, by a hash of their path; the prompts in [../prompts](../prompts) are cut from held-out files.
Structured documents describe library files, so text of a held-out file can share words with training documents about its
neighbours, as any code base does.
"""


def phase_rows(folder, phase):
    with (folder / "training_log.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["phase"] == phase]


def last_row(folder, phase):
    """Last row of a phase in the training log; None where there is none."""
    rows = phase_rows(folder, phase)
    return rows[-1] if rows else None


def peak_rate(folder, phase):
    """The schedule's peak: a little above the largest logged rate; two digits tell it."""
    return float(f"{max(float(row['learning_rate']) for row in phase_rows(folder, phase)):.2g}")


def size_lines(folder):
    tensors = load_tensors(folder)
    numbers = sum(value.numel() for value in tensors.values())
    size = (folder / WEIGHTS_FILE).stat().st_size
    return [f"- {numbers:,} numbers in {len(tensors)} tensors, {size / 1e6:.2f} MB (bf16; a few small tensors wider)"]


def training_line(row, what):
    return (f"- {what}: {int(row['step']):,} steps, {int(row['tokens']) / 1e6:.0f} million tokens, "
            f"{float(row['seconds']):.0f} s on one H200")


def acceptance_table(report):
    lines = ["| domain | tokens | a1 | a2 | a3 | a4 | acceptance length |", "|---|---|---|---|---|---|---|"]
    for domain, entry in report.items():
        rates = " | ".join(f"{rate:.3f}" for rate in entry["conditional"])
        lines.append(f"| {domain} | {entry['tokens']} | {rates} | {entry['acceptance_length']:.2f} |")
    return lines


ACCEPTANCE_TEXT = """## Acceptance

Greedy, chains of four draft tokens, on the held-out prompts; a_i is the share of drafts at position i that were
accepted among those whose predecessors were; the length counts the bonus token. Measured by
scripts/train/acceptance.py, kept in [reference_acceptance.json](reference_acceptance.json).
"""

TITLES = {
    "tiny-kimi": "the DeepSeek-V3 architecture of DeepSeek-V3 and Kimi-K2, small: latent attention, one dense layer, "
                 "then experts (32, top 4, one shared) chosen by sigmoid scores with a correction bias",
    "tiny-qwen": "the Qwen3.5 text architecture, small: three layers of gated delta net and one of gated full "
                 "attention, experts in every layer (32, top 4, one shared behind a gate), and an MTP module",
}


def commands(model, target, drafter):
    """target, drafter: folders whose logs tell how long each was trained."""
    phases = [(name, last_row(folder, name), peak_rate(folder, name))
              for name, folder in (("target", target), ("drafter", drafter))]
    lengths = " ".join(f"--{name}-steps {row['step']} --{name}-rate {rate:g}" for name, row, rate in phases)
    return ["## Training it again", "", "```",
            "python3 scripts/train/corpus.py --docs /usr/share/doc/python3.11/html --output corpus.npz",
            f"python3 scripts/train/train.py --model {model} --corpus corpus.npz --output data/models --compile \\",
            f"    {lengths}",
            f"python3 scripts/train/evaluate.py --model {model} --models data/models --corpus corpus.npz", "```", "",
            "[docs/training.md](../../../docs/training.md) has the formulas and the data's making. A run is not reproduced",
            "bit for bit: GPU kernels add in their own order.", ""]


def write_target(folder, model, bits, check, report, drafter_folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    lines = [f"# {model}", "", *textwrap.wrap(
                 f"A byte-level language model of {TITLES[model]}. It exists to run real speculative decoding on any "
                 "machine; it is no useful writer.", 116), "", "## Size and training", "",
             *size_lines(folder),
             f"- {config['num_hidden_layers']} layers, hidden {config['hidden_size']}, vocabulary "
             f"{config['vocab_size']} (256 bytes, BOS 256, EOS 257, the rest unused)",
             training_line(last_row(folder, "target"), "target"),
             "- loss curve: [loss.svg](loss.svg), from [training_log.csv](training_log.csv)", ""]
    drafter = last_row(folder, "drafter")
    if drafter is not None:
        lines.insert(-2, training_line(drafter, "MTP module, target frozen"))
    lines += ["## Held-out loss", "", "| domain | bits per byte |", "|---|---|",
              *[f"| {domain} | {value:.3f} |" for domain, value in bits.items()], "",
              f"On part of these windows, in float32: {check['ours']:.4f} here, {check['theirs']:.4f} by "
              f"`{check['class']}` of transformers {check['version']}.", ""]
    if report is not None:
        lines += [ACCEPTANCE_TEXT, *acceptance_table(report), ""]
    else:
        lines += [f"Its EAGLE-3 head is in [../{model}-eagle3](../{model}-eagle3).", ""]
    lines += [DATA, *commands(model, folder, drafter_folder), LICENCE]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def write_eagle3(folder, report, target_folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layers = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    lines = ["# tiny-kimi-eagle3", "",
             "The EAGLE-3 head of [tiny-kimi](../tiny-kimi), in the published Llama-style layout: one layer over the",
             "embedding of the newest token and a feature made of three of the target's hidden states.", "",
             "## Size and training", "", *size_lines(folder),
             f"- features: outputs of target layers {', '.join(map(str, layers))} (counted from 0); draft vocabulary "
             f"{config['draft_vocab_size']}", training_line(last_row(folder, "drafter"), "head, target frozen"),
             "- trained over five unrolled steps: [loss.svg](loss.svg), from [training_log.csv](training_log.csv)", "",
             ACCEPTANCE_TEXT, *acceptance_table(report), "", DATA, *commands("tiny-kimi", target_folder, folder), LICENCE]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
