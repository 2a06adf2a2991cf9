package plugin

import (
	// Names of the cluster are all that a test node resolves; the module's own list imports the clouds' SDKs.
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)
