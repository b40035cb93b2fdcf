package kubeadm

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// The files for dedicated servers fit the cluster that they join: Underlay accepts them, and a
// server that joins is one that the pool is for.
func TestDedicatedServersFitTheirCluster(t *testing.T) {
	const folder = "kubeadm/cloud-dual-stack"
	var cloud, dedicated struct {
		values
		Robot struct{ SecretName string }
	}
	for file, into := range map[string]any{"values.yaml": &cloud, "values-dedicated.yaml": &dedicated} {
		if err := yaml.Unmarshal([]byte(read(t, folder, file)), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if dedicated.Robot.SecretName == "" {
		t.Error("values-dedicated.yaml names no Secret")
	}
	maps.Copy(cloud.Config, dedicated.Config)
	got, warnings, err := settings(t, cloud.values)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %v", err, warnings)
	}
	join := read(t, folder, "join-dedicated.yaml")
	node, err := labels.ConvertSelectorToLabelsMap(argument(t, join, "node-labels"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(argument(t, join, "node-ip"), ",")
	address := netip.MustParseAddr(first)
	if !got.VSwitch.Subnet.Contains(address) || address == got.VSwitch.Gateway() {
		t.Errorf("a server joins with %v, which is none of a server in %v", address, got.VSwitch.Subnet)
	}
	pools := 0
	for _, p := range got.IPAM.Pools {
		switch {
		case !p.VSwitch:
			continue
		case !p.Selector.Matches(node):
			t.Errorf("pool %s is not for a server that joins with the labels %v", p.Name, node)
		case p.Prefix.Contains(address):
			t.Errorf("pool %s has the server's address %v", p.Name, address)
		}
		pools++
	}
	if pools == 0 {
		t.Error("no pool is inside the vSwitch's subnet")
	}
}
