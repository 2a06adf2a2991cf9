package operations

import (
	"context"
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"
)

// AWSOperationsProvider reports that this build reads no logs of AWS.
func AWSOperationsProvider(context.Context, map[config.Key]string, *Resource) (Provider, error) {
	return nil, errors.New("this build of Pulumi reads no logs of AWS; use a released one")
}
