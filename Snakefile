# So that `snakemake` at the root finds the workflow.
include: "workflow/Snakefile"


workflow.default_target = (
    rules.all.rule.name
)  # an included Snakefile's own is forgotten


onerror:  # forgotten, too
    show_results()
