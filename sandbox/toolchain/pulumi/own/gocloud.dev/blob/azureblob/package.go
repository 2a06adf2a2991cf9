// Package azureblob opens nothing: this project keeps state in files or in S3.
package azureblob

import (
	"context"
	"errors"
	"net/url"

	"gocloud.dev/blob"
)

// Scheme of URLs that name a container of Azure Blob Storage.
const Scheme = "azblob"

// ServiceURLOptions has no options.
type ServiceURLOptions struct{}

// URLOpener refuses every URL.
type URLOpener struct {
	MakeClient        func()
	ServiceURLOptions ServiceURLOptions
}

// NewDefaultClient makes nothing.
func NewDefaultClient() {}

// NewDefaultServiceURLOptions returns no options.
func NewDefaultServiceURLOptions() *ServiceURLOptions {
	return &ServiceURLOptions{}
}

// OpenBucketURL reports that this build opens no azblob:// container.
func (*URLOpener) OpenBucketURL(context.Context, *url.URL) (*blob.Bucket, error) {
	return nil, errors.New("this build of Pulumi has no driver for azblob://; use a released one")
}
