module trainyard/toolchain/volcano-chart

go 1.26.0

require volcano.sh/volcano v1.15.1
