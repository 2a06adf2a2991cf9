package provider

import (
	"context"
	"fmt"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider/resource"
	rpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// Component resources (ConfigFile and ConfigGroup of yaml/v2, Chart of helm.sh/v4, Directory of kustomize/v2) need
// Pulumi's SDK for Go, which is two thirds of what the whole plugin compiles. No stack of this project has one.
var resourceProviders map[string]resource.ResourceProviderFactory

func (k *kubeProvider) Construct(_ context.Context, request *rpc.ConstructRequest) (*rpc.ConstructResponse, error) {
	return nil, fmt.Errorf("%s: this build of the plugin has no component resources; use a released one", request.GetType())
}
