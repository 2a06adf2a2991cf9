#!/bin/bash
# Build libfabric with its EFA provider and NCCL's plugin for it into PREFIX: build-efa.sh PREFIX CUDA HEADERS
# CUDA, HEADERS: folders `nvidia/cu13` of torch's CUDA wheels, and of requirements-efa.txt. Both libraries load CUDA at
# run time, from the driver and from torch's wheels. A commit names its content, so git checks
# what it fetches.
set -euo pipefail
prefix=$1 cuda=$(realpath "$2") headers=$(realpath "$3") work=$(mktemp -d)

fetch() { # FOLDER REPOSITORY TAG COMMIT
    git init -q "$work/$1"
    git -C "$work/$1" fetch -q --depth 1 "$2" "$4"
    git -C "$work/$1" checkout -q FETCH_HEAD
    git -C "$work/$1" tag -f "$3" >/dev/null # the plugin takes its version from it
}
fetch libfabric "${LIBFABRIC_SOURCE:-https://github.com/ofiwg/libfabric}" v2.6.0 5de2d6a2df83595bcc38531cb91bf59495559495
fetch plugin "${PLUGIN_SOURCE:-https://github.com/aws/aws-ofi-nccl}" v1.21.1 2475c4c736907e68ebeadb3848f31231ee4a44d0

# The layout that both expect of a CUDA installation.
mkdir "$work/cuda" "$work/cuda/include" "$work/cuda/lib64"
ln -s "$cuda"/include/* "$headers"/include/* "$work/cuda/include"
ln -s "$cuda"/lib/libcudart.so.* "$work/cuda/lib64/libcudart.so"

cd "$work/libfabric"
./autogen.sh
./configure --prefix="$prefix" --disable-static --enable-only --enable-efa --enable-shm \
    --with-cuda="$work/cuda" --enable-cuda-dlopen
make -j"$(nproc)" install

cd "$work/plugin"
./autogen.sh
LD_LIBRARY_PATH=$cuda/lib ./configure --prefix="$prefix" --disable-tests --enable-platform-aws --enable-cudart-dynamic \
    --with-libfabric="$prefix" --with-cuda="$work/cuda" LDFLAGS="-Wl,-rpath,$prefix/lib"
make -j"$(nproc)" install
rm -rf "$work" "$prefix/include" "$prefix/share/man"
test -e "$prefix/lib/libnccl-net.so"
