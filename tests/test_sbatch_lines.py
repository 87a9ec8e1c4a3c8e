"""What a rule reserves, and what sbatch is asked for: lines for 64 and for 128 GPUs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import yaml
from snakemake_calls import rules, submitted

from hadpsgd import cli

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "sbatch.txt"


def test_a_rules_threads_are_its_processes() -> None:
    """What a command can start, its rule reserves; what a rule reserves, its command starts."""
    found = rules()
    for name, text in found.items():
        stage = re.search(r"hadpsgd ([\w-]+)", text)
        if not stage or stage[1] == "launch":  # it starts learners
            continue
        parser = argparse.ArgumentParser()
        cli.load(stage[1]).configure(parser)
        several = "--jobs" in parser._option_string_actions
        assert several == ("--jobs {threads}" in text), name
        assert several or "threads:" not in text, name


def sbatch_lines(folder: Path) -> str:
    """What would be submitted for 64 and for 128 GPUs, 8 on each host, and for one."""
    profile = (ROOT / "profiles/slurm/config.yaml").read_text()
    for name in ("account", "partition"):
        pattern = rf"# (slurm_\w+: your-{name})\b.*"
        profile, count = re.subn(pattern, r"\1", profile)
        assert count == 1, f"{name} has its place in the profile"
    one_rule = r"# (set-resources:\n)# (  train:\n)# (    slurm_partition: your-gpu-.*\n)"
    profile, count = re.subn(one_rule, r"\1\2\3", profile)
    assert count == 1, "one rule's resources have their place"
    many = [{"strategy": "hadpsgd", "learners": n, "super_learner": 8} for n in (64, 128)]
    training = {"device": "cuda", "batch": 2560, "runs": [*many, {"strategy": "single"}]}
    site = {"learners_per_node": 8, "cpus": 4, "memory_mb": 16000}
    (folder / "site.yaml").write_text(yaml.safe_dump(site))
    assert "site=profiles/slurm/site.yaml" in profile
    profile = profile.replace("profiles/slurm/site.yaml", "site.yaml")
    (folder / "profile").mkdir()
    (folder / "profile/config.yaml").write_text(profile.replace("# qos: your", "qos: your"))
    config = {"name": "many", "corpus": {"kind": "builtin"}, "training": training}
    config["decoding"] = {"device": "cuda"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines = submitted(
        *("--profile", "profile", "--snakefile", str(ROOT / "Snakefile")),
        *("--configfile", "config.yaml", "--", "results/many/index.html"),
        cwd=folder,
    )
    # other settings give other keys; the lines are of all others
    return re.sub(r"-[0-9a-f]{8}(?![0-9a-f])", "-KEY", lines)


def test_no_rule_waits_for_what_another_ones_group_needs() -> None:
    """mono, which needs lang, waited for the language model that shared a job with lang."""
    found = {name: re.findall(r'group:\s+"(\w+)"', text) for name, text in rules().items()}
    assert {name for name, group in found.items() if group} == {"tune", "score"}
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    # of one run: those of several would wait for the last of them
    assert not {"groups", "group-components", "set-resources", "set-threads"} & profile.keys()


def test_sbatch_lines_of_64_and_128_gpus(tmp_path: Path) -> None:
    """`python tests/test_sbatch_lines.py` writes them anew; look at the difference."""
    found = sbatch_lines(tmp_path)
    assert found.splitlines() == GOLDEN.read_text().splitlines()
    train = [line for line in found.splitlines() if "rule_train_" in line]
    assert ["--nodes=8 " in line and "--gres=gpu:8" in line for line in train] == [
        False,
        True,
        False,
    ]
    assert not re.search("--gpus-per-task|--ntasks-per-gpu", found)  # they run a script often


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(sbatch_lines(Path(temporary)))
