package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// dualStack are nodes with internal addresses of both families.
func dualStack(count int, name string) (nodes []*corev1.Node) {
	for i := range count {
		n := someNodes(fmt.Sprintf("%s-%04d", name, i))[0]
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.100.%d.%d", 100+i/100, 100+i%100)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("2001:db8:1234:%x::1", 0x1000+i)},
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// Linux starts no program with an argument of 128 KiB or more, so the list of all others in the
// arguments of each pod must be shorter with many nodes.
func TestManyNodesGetAListOfEachOther(t *testing.T) {
	nodes := dualStack(MostNodes, strings.Repeat("n", 248)) // with a number, the longest valid name
	w := connectivity.World{
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.9"), netip.MustParseAddr("fd00:96::9")},
		NodePort:   30080, HealthPort: 31000,
	}
	for i, n := range nodes {
		w.Nodes = append(w.Nodes, connectivity.Node{
			Name: n.Name, Addresses: kube.InternalIPs(n),
			Pods: []netip.Addr{
				netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", 100+i/100, 100+i%100)),
				netip.MustParseAddr(fmt.Sprintf("2001:db8:5678:%x:1:2:3:4", 0x1000+i)),
			},
		})
	}
	argument, err := worldArg(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range prober("agent:v1", nodes[0].Name, argument, 0).Spec.Containers[0].Args {
		if len(given) >= 128<<10 {
			t.Errorf("an argument has %d bytes", len(given))
		}
	}
	t.Logf("%d nodes take %d bytes", len(nodes), len(argument))
}

// Runs that can't work return an error before anything is created.
func TestTooManyNodes(t *testing.T) {
	w := newWorld()
	w.run = func(*corev1.Pod) { t.Error("a pod is made") }
	_, err := w.runner().Run(t.Context(), dualStack(MostNodes+1, "n"))
	if err == nil || !strings.Contains(err.Error(), "lower --max-nodes") || len(w.left(t)) > 0 {
		t.Errorf("%v, %v is left", err, w.left(t))
	}
}
