# Start the ranks of a TrainJob by trainyard.launch: BASH_ENV names this file in the runtime of training/kubeflow.py.
# Kubeflow's SDK writes a function to a file and calls `torchrun FILE`; its controller sets the PET_* variables.
torchrun() {
    local ranks=$PET_NPROC_PER_NODE
    if [[ $ranks == auto ]]; then
        ranks=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
    fi
    export TRAINYARD_NODES=$PET_NNODES TRAINYARD_GPUS_PER_NODE=$((ranks > 0 ? ranks : 1))
    export TRAINYARD_RENDEZVOUS_HOST=$PET_MASTER_ADDR TRAINYARD_RENDEZVOUS_PORT=$PET_MASTER_PORT
    unset "${!PET_@}" # torchrun would take them for options
    exec python3 -m trainyard.launch --launcher torchrun -- "$@"
}
