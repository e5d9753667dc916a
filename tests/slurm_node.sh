#!/usr/bin/env bash
# A SLURM of one node on this machine, for the tests: slurm_node.sh start FOLDER [CPUS] | slurm_node.sh stop FOLDER
# Needs munged, slurmctld and slurmd, and to be run by root. Everything it writes is in FOLDER; no cgroups, no accounting.
set -euo pipefail
action=$1 folder=$2 cpus=${3:-2}

stop() {
  for name in slurmd slurmctld munged; do
    if [ -f "$folder/$name.pid" ]; then kill "$(cat "$folder/$name.pid")" 2>/dev/null || true; fi
  done
}
if [ "$action" = stop ]; then stop; exit; fi

export SLURM_CONF=$folder/slurm.conf
mkdir -p "$folder"/{state,spool,log}
dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none
chmod 600 "$folder/munge.key"
ports=($(python3 -c '
import socket
probes = [socket.socket() for _ in range(2)]
for probe in probes: probe.bind(("127.0.0.1", 0))
print(*[probe.getsockname()[1] for probe in probes])'))
cat > "$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=1,sched_interval=1
JobRequeue=1
KillWait=2
MpiDefault=none
ReturnToService=2
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF

trap 'stop; tail -n 20 "$folder"/log/*.log >&2' ERR
munged --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" --pid-file="$folder/munged.pid" \
  --log-file="$folder/log/munged.log" --seed-file="$folder/munge.seed"
slurmctld
slurmd
for _ in $(seq 100); do
  if sinfo --noheader --format=%T 2>/dev/null | grep -q idle; then exit 0; fi
  sleep 0.2
done
echo "slurm_node: the node did not become idle" >&2
false
