package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// TestManyNodes: Linux starts no program with an argument of 128 KiB or more, so each of many nodes'
// pods has to be told of all others in less; and what can't work is refused before anything is made.
func TestManyNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []*corev1.Node
		err   string
	}{
		{name: "500 nodes, dual stack", nodes: dualStack(500, "worker-pool-fsn1")},
		{
			name: "as many with names as long as a label", nodes: dualStack(500, strings.Repeat("n", 120)),
			err: "lower --max-nodes",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			longest, i := 0, 0
			w.run = func(p *corev1.Pod) {
				runs(p)
				if i++; p.Labels[Label] == asks {
					p.Status.Phase = corev1.PodFailed // before it writes a log of a megabyte
				}
				p.Status.PodIPs = []corev1.PodIP{
					{IP: fmt.Sprintf("10.244.%d.%d", 100+i/100%100, 100+i%100)}, {IP: fmt.Sprintf("2001:db8:5678:%x:1:2:3:4", 0x1000+i)},
				}
				for _, argument := range p.Spec.Containers[0].Args {
					longest = max(longest, len(argument))
				}
			}
			_, err := w.runner().Run(t.Context(), c.nodes)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || i > 0 || len(w.left(t)) > 0 {
					t.Errorf("%v after %d pods, want %q and nothing made", err, i, c.err)
				}
				return
			}
			if err != nil || i != 2*len(c.nodes) || longest >= 128<<10 {
				t.Errorf("%d pods, an argument of %d bytes: %v", i, longest, err)
			}
			t.Logf("the longest argument has %d bytes", longest)
		})
	}
}
