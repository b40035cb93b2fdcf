package controller

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A Node without a server doesn't affect Services with other nodes. From the first pass to the
// last, also during retries and while nodes join, their conditions are True and name the Node.
func TestANodeWithoutAServer(t *testing.T) {
	inLab(t, func(l *lab) {
		svc, ghost := l.service("000000000001"), readyNode("ghost", "hcloud://4711")
		says := func(want string, status metav1.ConditionStatus, nodes ...int) {
			l.t.Helper()
			all := append(l.nodes[:0:0], ghost)
			for _, i := range nodes {
				all = append(all, l.nodes[i])
			}
			_, err := l.once(svc, all...)
			l.must(err)
			c := meta.FindStatusCondition(l.live(svc).Status.Conditions, ConditionAccepted)
			if c.Status != status || !strings.Contains(c.Message, want) {
				l.t.Fatalf("%s %s, want %s %q\n%s", c.Status, c.Message, status, want, l.log())
			}
		}
		for range 24 * 6 {
			says("Node ghost: add server 4711", metav1.ConditionTrue, 0, 1)
			time.Sleep(10 * time.Minute)
		}
		says("Node ghost: add server 4711", metav1.ConditionTrue, 0, 1, 2)
		says("Node ghost: add server 4711", metav1.ConditionTrue, 1, 2)
		l.requests()
		says("Node ghost: add server 4711", metav1.ConditionTrue, 1, 2)
		if _, writes := l.requests(); writes > 0 {
			t.Errorf("%d writes where nothing changed", writes)
		}
	})
	inLab(t, func(l *lab) { // the only one
		svc := l.service("000000000001")
		_, err := l.once(svc, readyNode("ghost", "hcloud://4711"))
		l.must(err)
		c := meta.FindStatusCondition(l.live(svc).Status.Conditions, ConditionAccepted)
		if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "Node ghost: add server 4711") || !strings.Contains(c.Message, "delete the Node") {
			t.Errorf("%s %s", c.Status, c.Message)
		}
	})
}

// The note about a rejected target names the Node and the remedy.
func TestARefusedTargetNamesItsNode(t *testing.T) {
	inLab(t, func(l *lab) {
		loose := l.server(hcloudsim.ServerSeed{Name: "loose"})
		notes, err := l.once(l.service("000000000001"), l.nodes[0], loose)
		l.must(err)
		if len(notes) != 1 || !strings.HasPrefix(notes[0].Text, "Node loose: add server ") || !strings.Contains(notes[0].Text, "attach the server to the network") {
			t.Errorf("notes %v", notes)
		}
	})
}
