#!/usr/bin/env bash
# A real Slurm on one host, loopback only, for tests: slurmctld and several slurmd "nodes".
#   cluster.sh start|stop FOLDER        (each wait is bounded; FOLDER holds everything)
# Needs root and: apt-get install -y --no-install-recommends slurm-wlm munge
# FOLDER/bin goes first in PATH: the clients there know their slurm.conf, which the executor
# plugin's job step would forget (it drops every SLURM_* variable).
set -euo pipefail
COMMAND=$1
B=$2
NODES=${TEST_SLURM_NODES:-3}
CPUS=${TEST_SLURM_CPUS:-8} # a node; may exceed the host's
GPUS=${TEST_SLURM_GPUS:-2} # a node; plain files stand for them
PORT=${TEST_SLURM_PORT:-17000}
export SLURM_CONF=$B/slurm.conf
HOST=$(hostname -s)

alive() { [[ -s $1 ]] && kill -0 "$(cat "$1")" 2>/dev/null; }

wait_for() { # seconds, command...
  local tries=$(($1 * 5))
  shift
  while ((tries-- > 0)); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  return 1
}

write_conf() {
  mkdir -p "$B"/{state,log,run,munge,bin}
  chmod 755 "$B"
  chmod 711 "$B/munge"
  (umask 077 && head -c 128 /dev/urandom >"$B/munge/key")
  cat >"$SLURM_CONF" <<CONF
ClusterName=tests
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$B/munge/sock,cred_expire=15
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$B/log/jobcomp.txt
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
MinJobAge=3600
KillWait=30
OverTimeLimit=0
InactiveLimit=0
SlurmctldTimeout=30
SlurmdTimeout=60
PreemptMode=REQUEUE
PreemptType=preempt/partition_prio
StateSaveLocation=$B/state
SlurmdSpoolDir=$B/spool/%n
SlurmctldPidFile=$B/run/slurmctld.pid
SlurmdPidFile=$B/run/slurmd.%n.pid
SlurmctldLogFile=$B/log/slurmctld.log
SlurmdLogFile=$B/log/slurmd.%n.log
SrunPortRange=$((PORT + 100))-$((PORT + 299))
CONF
  for i in $(seq "$NODES"); do
    mkdir -p "$B/spool/n$i"
    echo "NodeName=n$i NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((PORT + i)) CPUs=$CPUS RealMemory=64000 Gres=gpu:$GPUS State=UNKNOWN"
  done >>"$SLURM_CONF"
  {
    echo "PartitionName=main Nodes=n[1-$NODES] Default=YES MaxTime=UNLIMITED State=UP PriorityTier=10 PreemptMode=OFF"
    echo "PartitionName=preemptible Nodes=n[1-$NODES] MaxTime=UNLIMITED State=UP PriorityTier=1 PreemptMode=REQUEUE"
  } >>"$SLURM_CONF"
  for i in $(seq 0 $((GPUS - 1))); do touch "$B/gpu$i"; done
  echo "NodeName=n[1-$NODES] Name=gpu File=$B/gpu[0-$((GPUS - 1))]" >"$B/gres.conf"
  for client in srun sbatch salloc squeue sinfo scancel scontrol sacct sacctmgr sshare sstat; do
    real=$(command -v $client) || continue
    printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' "$SLURM_CONF" "$real" >"$B/bin/$client"
    chmod 755 "$B/bin/$client"
  done
}

ready() { [[ $(sinfo -h -N -p main -t idle | wc -l) -ge $NODES ]]; }

start() {
  write_conf
  munged --key-file="$B/munge/key" --socket="$B/munge/sock" --pid-file="$B/run/munged.pid" \
    --seed-file="$B/munge/seed" --log-file="$B/log/munged.log" --num-threads=2
  wait_for 60 munge -S "$B/munge/sock" -n || { echo "munged did not answer" >&2; exit 1; }
  slurmctld -f "$SLURM_CONF"
  wait_for 60 scontrol ping || { tail "$B/log/slurmctld.log" >&2; exit 1; }
  for i in $(seq "$NODES"); do slurmd -N "n$i" -f "$SLURM_CONF"; done
  wait_for 90 ready || { sinfo -R >&2; tail -n 5 "$B"/log/slurmd.*.log >&2; exit 1; }
}

stop() { # by the process ids that the daemons wrote, never by name
  if alive "$B/run/slurmctld.pid"; then
    timeout 10 scancel -u "$(id -un)" 2>/dev/null || true
    wait_for 20 bash -c '[[ -z $(squeue -h) ]]' || true
  fi
  for file in "$B"/run/slurmd.*.pid "$B"/run/slurmctld.pid "$B"/run/munged.pid; do
    alive "$file" || continue
    pid=$(cat "$file")
    kill "$pid" 2>/dev/null || true
    wait_for 10 bash -c "! kill -0 $pid" || kill -9 "$pid" 2>/dev/null || true
  done
}

case $COMMAND in
start) start ;;
stop) stop ;;
*)
  echo "usage: $0 start|stop FOLDER" >&2
  exit 64
  ;;
esac
