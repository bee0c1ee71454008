#!/usr/bin/env bash
# A Dask scheduler and workers as processes of this machine, on loopback only.
#   cluster.sh up [WORKERS] [MEMORY]     cluster.sh down
set -euo pipefail

folder=${CLUSTER_FOLDER:-.cluster}

up() {
    local workers=${1:-2} memory=${2:-2GiB}
    mkdir -p "$folder"
    rm -f "$folder/scheduler.json" "$folder/address"
    # BLAS threads would compete with the leaves, one of which runs in every thread.
    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
    # --no-dashboard alone would still serve on 0.0.0.0.
    dask scheduler --host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0 \
        --scheduler-file "$folder/scheduler.json" >"$folder/scheduler.log" 2>&1 &
    echo $! >"$folder/pids"
    for _ in $(seq 100); do
        [ -s "$folder/scheduler.json" ] && break
        sleep 0.2
    done
    [ -s "$folder/scheduler.json" ] || { echo "The scheduler did not start within 20 s; see $folder/scheduler.log." >&2; exit 1; }
    for number in $(seq "$workers"); do
        dask worker --scheduler-file "$folder/scheduler.json" --host 127.0.0.1 \
            --dashboard-address 127.0.0.1:0 --nthreads 1 --nworkers 1 --memory-limit "$memory" \
            --local-directory "$folder" --death-timeout 60 >"$folder/worker-$number.log" 2>&1 &
        echo $! >>"$folder/pids"
    done
    python -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' \
        "$folder/scheduler.json" | tee "$folder/address"
}

down() {
    [ -f "$folder/pids" ] || { echo "No cluster of this script runs here ($folder/pids is absent)." >&2; exit 1; }
    while read -r pid; do kill "$pid" 2>/dev/null || true; done <"$folder/pids"
    rm -rf "$folder"
}

case "${1:-}" in
    up) shift; up "$@" ;;
    down) down ;;
    *) echo "usage: cluster.sh up [WORKERS] [MEMORY] | down" >&2; exit 2 ;;
esac
