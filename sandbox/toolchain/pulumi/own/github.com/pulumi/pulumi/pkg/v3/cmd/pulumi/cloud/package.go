// Package cloud calls nothing: this project's stacks are not kept in Pulumi Cloud.
package cloud

import (
	"context"
	"errors"

	"github.com/pulumi/pulumi/pkg/v3/backend/httpstate/client"
	"github.com/spf13/cobra"
)

var errLeftOut = errors.New("this build of Pulumi has no client for Pulumi Cloud's API; use a released one")

// APIError is a failed call. None is made.
type APIError struct {
	ExitCode int
	Silent   bool
}

func (*APIError) Error() string { return errLeftOut.Error() }

// ResolvedContext says whose account a command of Pulumi Cloud works on.
type ResolvedContext struct {
	Client   *client.Client
	OrgName  string
	LoggedIn bool
}

// ResolveContext reports that this build has no client.
func ResolveContext(context.Context) (*ResolvedContext, error) {
	return nil, errLeftOut
}

// NewAPICmd returns `pulumi api`, which reports the same.
func NewAPICmd() *cobra.Command {
	return &cobra.Command{
		Use:                "api",
		Short:              "Call Pulumi Cloud's API (not in this build)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errLeftOut
		},
	}
}
