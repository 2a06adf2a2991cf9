// Package gcsblob has the name of its URLs only: this project keeps state in files or in S3.
package gcsblob

// Scheme of URLs that name a bucket of Google Cloud Storage.
const Scheme = "gs"
