rule report:
    input:
        config=ancient(CONFIG_FILE),
        score=expand(
            f"{OUT}/score/{{run}}/{{set}}", run=RUNS, set=["dev", *CONFIG.tests]
        ),
        summary=expand(f"{OUT}/runs/{{run}}/summary.json", run=RUNS),
    output:
        wer=report(f"{OUT}/wer.md", caption="../report/wer.rst", category="Results"),
        page=report(
            f"{OUT}/report.html", caption="../report/report.rst", category="Results"
        ),
        curves=report(
            f"{OUT}/curves.png", caption="../report/curves.rst", category="Training"
        ),
        rate=report(
            f"{OUT}/learning_rate.png",
            caption="../report/learning_rate.rst",
            category="Training",
        ),
        stages=report(
            f"{OUT}/stages.md", caption="../report/stages.rst", category="Resources"
        ),
        significance=f"{OUT}/significance.json",
    log:
        f"{OUT}/logs/report.log",
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    shell:
        "hadpsgd report --config {input.config} --out {output.wer} 2> {log}"


rule track:
    input:
        config=ancient(CONFIG_FILE),
        report=rules.report.output,
    output:
        f"{OUT}/tracking.json",
    log:
        f"{OUT}/logs/track.log",
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    shell:
        "hadpsgd track --config {input.config} --out {output} 2> {log}"
