//go:build linux

package main

import (
	"context"
	_ "embed"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
)

// The families that Services of a spec have, if not those that it asks for.
const (
	familyIPv6        = "ipv6"
	familiesDualStack = "dual-stack"
)

//go:embed families.yaml
var familiesPolicy string

// setFamilies lets Services of runs have the families at the end of the run's name. It returns when
// the API server does so, which is a moment after it has the policy.
func setFamilies(ctx context.Context, c *kubeadm.Cluster) error {
	if _, err := c.Feed(ctx, kubeadm.First, familiesPolicy, "kubectl apply -f -"); err != nil {
		return err
	}
	return onFirst(ctx, c, "kubectl create namespace families", "kubectl label namespace families e2e-run=none-"+familyIPv6,
		"until kubectl -n families create service loadbalancer probe --tcp=80 --dry-run=server -o jsonpath='{.spec.ipFamilies}' | grep IPv6; do sleep 1; done",
		"kubectl delete namespace families")
}

// inFamilies are specs of load balancers for Services as they ask for them, and for each choice of
// families.
func inFamilies(specs []spec) (all []spec) {
	for _, families := range []string{"", familyIPv6, familiesDualStack} {
		for _, s := range specs {
			s.Families = families
			all = append(all, s)
		}
	}
	return all
}
