// Package kuberouter builds kube-router, whose firewall enforces NetworkPolicies with iptables and
// ipset. Measurements of NetworkPolicies compare with it.
package kuberouter

import (
	"context"
	"io"

	"github.com/underlay-ccm/underlay/test/testenv/module"
)

// KubeRouter is a built kube-router.
type KubeRouter struct{ module.Built }

// Program is the path of the program kube-router.
func (k KubeRouter) Program() string { return k.Built.Program("kube-router") }

func release() module.Module {
	const path = "github.com/cloudnativelabs/kube-router/v2"
	return module.Module{
		Name: "kube-router", Title: "kube-router", Requirer: "kuberouter", Path: path,
		Manifest: "daemonset/kube-router-firewall-daemonset.yaml", Takes: "3 minutes",
		Arguments: func(context.Context, module.Built, string) ([]string, error) {
			return []string{"-ldflags", "-s -w", path + "/cmd/kube-router"}, nil
		},
	}
}

// Built returns kube-router if Build has built it before, and reports whether it has.
func Built() (KubeRouter, bool, error) {
	b, is, err := release().Built()
	return KubeRouter{b}, is, err
}

// Build returns kube-router, and builds it first if it is missing: that takes some minutes and is
// reported on progress.
func Build(ctx context.Context, progress io.Writer) (KubeRouter, error) {
	b, err := release().Build(ctx, progress)
	return KubeRouter{b}, err
}
