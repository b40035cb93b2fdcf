package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
)

func TestAConditionNamesTenPeersAndCountsTheRest(t *testing.T) {
	var peers []Peer
	for i := range 25 {
		peers = append(peers, Peer{fmt.Sprintf("node-%02d", i), "is far"})
	}
	c := peersReachable(outcome{peers: peers})
	if c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "25 nodes") ||
		!strings.Contains(c.Message, "node-09: is far; and 15 more") || strings.Contains(c.Message, "node-10") {
		t.Errorf("%+v", c)
	}
}

// The outcome of a pass for one Node isn't written to the next Node of the same name, which has no
// podCIDR yet: a Node that was ready once is never declared unready again.
func TestAnOutcomeIsOfOneNode(t *testing.T) {
	next := self()
	next.UID = "2"
	client := fake.NewClientset(next)
	nodes := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes().Informer()
	if err := nodes.GetStore().Add(next); err != nil {
		t.Fatal(err)
	}
	s := newStatus(Config{
		Nodes: directorytest.Nodes{Self: "self", Informer: nodes}, Client: client, Recorder: record.NewFakeRecorder(10), Settings: Settings{Self: "self", Modes: bothByNodes},
	})
	defer s.queue.ShutDown()
	for uid, patches := range map[types.UID]bool{"1": false, "2": true} {
		client.ClearActions()
		s.tell(outcome{uid: uid, hasPodCIDRs: true})
		if err := s.write(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if wrote := len(client.Actions()) > 0; wrote != patches {
			t.Errorf("after a pass for UID %s: %v", uid, client.Actions())
		}
	}
}

// While peers are lost one after the other, the condition's status changes at once, and its message
// once a minute.
func TestRewordingIsRare(t *testing.T) {
	var nodes []*corev1.Node
	nodes = append(nodes, self())
	withFixture(t, bothByNodes, nodes, func(w *fixture) {
		time.Sleep(2 * time.Minute)
		w.rest()
		w.client.ClearActions()
		patches := func() int {
			n := 0
			for _, action := range w.client.Actions() {
				if action.GetVerb() == "patch" {
					n++
				}
			}
			return n
		}
		for i := range 20 {
			w.put(kubeNode(fmt.Sprintf("far-%02d", i), fmt.Sprintf("10.9.0.%d", i+1), fmt.Sprintf("10.244.%d.0/24", 100+i)))
			w.rest()
		}
		if n := patches(); n != 1 {
			t.Errorf("%d writes at once, want the one that turned the condition", n)
		}
		time.Sleep(2 * time.Minute)
		w.rest()
		if n := patches(); n != 2 {
			t.Errorf("%d writes in two minutes, want one more with all of them", n)
		}
		if c := w.condition(PeersReachable); !strings.Contains(c.Message, "pods of 20 nodes") {
			t.Errorf("it says %q", c.Message)
		}
	})
}
