#@ run(header, ranks)
#!/bin/sh
$header
#
# sh run.sh [-n RANKS] [--hosts HOST:RANKS,...] [OPTIONS of train]
set -eu

fail() {
    echo "run.sh: $2" >&2
    exit "$1"
}

folder=$$(CDPATH="" cd "$$(dirname "$0")" && pwd)
ranks=$ranks hosts=""
while [ $# -gt 1 ]; do
    case $1 in
    -n) ranks=$2 ;;
    --hosts) hosts=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ "${1-}" != -- ] || shift
case $$ranks in
'' | 0* | *[!0-9]*) fail 1 "-n: '$$ranks' found, expected the number of ranks" ;;
esac

#@ by_launcher()
version=$$(mpirun --version 2> /dev/null) ||
    fail 3 "mpirun: not found in PATH, expected an MPI that starts the ranks"
set -- -n "$$ranks" "$$folder/train" "$@"
case $$version in
*"Open MPI"*)
    [ -z "$$hosts" ] || set -- --host "$$hosts" "$@"
    [ "$$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
    set -- --oversubscribe --bind-to none "$@" # ranks may share cores, and each uses several
    ;;
*)
    [ -z "$$hosts" ] || set -- -hosts "$$hosts" "$@"
    set -- -bind-to none "$@"
    ;;
esac
exec mpirun "$@"

#@ await()
# Sets code to the exit status of a process. A request to stop interrupts a wait, and another one follows.
await() {
    code=0 asked=yes
    while [ -n "$$asked" ]; do
        asked="" again=0
        wait "$1" || again=$?
        [ "$$again" = 127 ] || code=$$again # 127: the wait before has had the status
    done
}

processes=
trap 'asked=yes; kill -USR1 $$processes 2> /dev/null || :' INT TERM HUP USR1 # train saves, and ends with status 75

#@ as_processes()
[ -z "$$hosts" ] || fail 1 "--hosts: the ranks start on this machine alone; on several: job.sbatch, or torchrun"
export WORLD_SIZE="$$ranks" LOCAL_WORLD_SIZE="$$ranks"
export MASTER_ADDR=127.0.0.1 MASTER_PORT="${MASTER_PORT-$$((20000 + $$$$ % 20000))}"
rank=0
while [ "$$rank" -lt "$$ranks" ]; do
    RANK=$$rank LOCAL_RANK=$$rank "$$folder/train" "$@" &
    processes="$$processes $!"
    rank=$$((rank + 1))
done
status=0
for process in $$processes; do
    await "$$process"
    [ "$$status" != 0 ] || status=$$code
done
exit "$$status"

#@ job(header, name, ranks)
#!/bin/sh
$header
#
# In this folder: sbatch [OPTIONS of sbatch] job.sbatch [OPTIONS of train]
# 120 seconds before the end of its time the job saves, is queued again, and goes on from its newest checkpoint.
#SBATCH --job-name=$name
#% if ranks then
#SBATCH --ntasks=$ranks
#% end
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu

cd "${SLURM_SUBMIT_DIR:-.}"
run=
for manifest in runs/"job-$$SLURM_JOB_ID".*/checkpoints/cycle-*/manifest.json; do
    [ ! -f "$$manifest" ] || run=${manifest%%/checkpoints/*}
done
if [ -n "$$run" ]; then
    set -- --resume "${run#runs/}" "$@"
else
    set -- --run "job-$$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" "$@"
fi

#@ task()
set -- "$$PWD/train" "$@" # the MPI of srun: sbatch --export=ALL,SLURM_MPI_TYPE=pmix, one of srun --mpi=list

#@ task_as_process()
MASTER_ADDR=$$(scontrol show hostnames "$$SLURM_JOB_NODELIST" | head -n 1)
WORLD_SIZE=${SLURM_NTASKS:?sbatch -n RANKS job.sbatch}
MASTER_PORT=$$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT WORLD_SIZE
set -- sh -c 'RANK=$$SLURM_PROCID LOCAL_RANK=$$SLURM_LOCALID exec "$0" "$@"' "$$PWD/train" "$@"

#@ queue_again()
srun "$@" &
processes=$!
await "$$processes"
[ "$$code" != 75 ] || scontrol requeue "$$SLURM_JOB_ID"
exit "$$code"
