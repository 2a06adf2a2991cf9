module trainyard/toolchain/karpenter-chart

go 1.26.9

require github.com/aws/karpenter-provider-aws v1.15.0
