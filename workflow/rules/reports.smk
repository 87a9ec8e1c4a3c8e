rule report:
    input:
        config=ancient(CONFIG_FILE),
        score=expand(
            f"{OUT}/score/{{run}}/{{set}}", run=RUNS, set=["dev", *CONFIG.tests]
        ),
        summary=expand(f"{OUT}/runs/{{run}}/summary.json", run=RUNS),
    output:
        f"{OUT}/wer.md",
    log:
        f"{OUT}/logs/report.log",
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    shell:
        "hadpsgd report --config {input.config} --out {output} 2> {log}"
