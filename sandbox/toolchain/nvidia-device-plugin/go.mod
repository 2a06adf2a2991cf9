module trainyard/toolchain/nvidia-device-plugin

go 1.26.0

require github.com/NVIDIA/k8s-device-plugin v0.19.1
