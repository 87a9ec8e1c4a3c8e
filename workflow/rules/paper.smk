# The page of the papers' claims, from the runs of `training.grids`, as MLflow has them.
rule paper_page:
    input:
        training=expand(f"{OUT}/tracked/{{run}}.training.json", run=RUNS),
        scores=expand(f"{OUT}/tracked/{{run}}.scores.json", run=DECODED),
    output:
        page=report(
            f"{OUT}/paper.html", caption="../report/paper.rst", category="Results"
        ),
        pictures=directory(f"{OUT}/paper"),
    log:
        f"{OUT}/logs/paper.log",
    priority: FIRST
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        config=config_file,
        rows=ROWS,
        parts=CONFIG.training.parts(),
    shell:
        "hadpsgd paper --config {params.config:q} --out {output.page:q} --pictures {output.pictures:q}"
        " 2> {log:q}"


# `snakemake -- paper`
rule paper:
    input:
        # without Snakemake's records (results copied from elsewhere) a new run shows here alone
        rules.paper_page.input,
        rules.paper_page.output,
