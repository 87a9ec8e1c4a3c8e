#!/bin/sh
# Of a job of PBS: running, success or failed; `qstat -x` knows ended ones.
qstat -x -f "$1" 2>/dev/null | awk '
  $1 == "job_state" { state = $3 }
  $1 == "Exit_status" { status = $3; ended = 1 }
  END { print state != "F" ? (state ? "running" : "failed") : ended && !status ? "success" : "failed" }'
