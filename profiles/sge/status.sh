#!/bin/sh
# Of a job of Grid Engine: running, success or failed. One that was killed (h_rt, h_vmem, qdel) is
# known by its accounting alone, which may come some seconds late: it is running until then.
if qstat -j "$1" >/dev/null 2>&1; then
  case $(qstat | awk -v job="$1" '$1 == job { print $5; exit }') in
  *E*) echo failed ;; # it will never start
  *) echo running ;;
  esac
  exit
fi
qacct -j "$1" 2>/dev/null | awk '
  $1 == "failed" { failed = $2 }
  $1 == "exit_status" { status = $2; ended = 1 }
  END { print !ended ? "running" : failed + status ? "failed" : "success" }'
