//go:build linux

package main

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	accountCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// restConfig returns the configuration of clients, with the API server's real address.
func (o *options) restConfig() (*rest.Config, error) {
	to := &rest.Config{
		Host: o.apiServer, BearerTokenFile: accountToken,
		TLSClientConfig: rest.TLSClientConfig{CAFile: accountCA},
	}
	if o.kubeconfig != "" {
		var err error
		if to, err = clientcmd.BuildConfigFromFlags(o.apiServer, o.kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig %q: can't be used: %w; name a file that this process may read, whose current context has a server", o.kubeconfig, err)
		}
	}
	to.Wrap(kube.WithDeadline)
	to.UserAgent = "underlay-agent/" + version.Get().GitVersion
	// For thousands of Nodes, protobuf takes a tenth of the memory and time of JSON.
	to.ContentType = "application/vnd.kubernetes.protobuf"
	to.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return to, nil
}
