// Package register registers AWS only: this project's stacks use no other store.
package register

import (
	_ "github.com/external-secrets/external-secrets/pkg/provider/aws"
)
