package cloud

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// EventServerMissing means that a Node is Ready, but the project has no server with its provider
// ID. This happens if a server is replaced under the Node's name while the Node is not checked:
// the new kubelet uses the existing Node, and routes and targets keep pointing to the old
// server. A provider ID is immutable, so an operator has to delete the Node.
const EventServerMissing = "ServerMissing"

// missingLong is the minimum time that a server must be missing: the Node of a deleted server is
// Ready until its kubelet has been unresponsive for a while.
const missingLong = 2 * time.Minute

// missing records since when Nodes' servers have been missing, and which were reported. The zero
// value is ready for use.
type missing struct {
	mu    sync.Mutex
	nodes map[types.UID]*lack
}

type lack struct {
	since time.Time
	shown bool
}

// lasts reports whether the server has been missing for missingLong, and was not reported yet.
func (m *missing) lasts(uid types.UID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes == nil {
		m.nodes = map[types.UID]*lack{}
	}
	l := m.nodes[uid]
	if l == nil {
		l = &lack{since: now}
		m.nodes[uid] = l
	}
	return !l.shown && now.Sub(l.since) >= missingLong
}

func (m *missing) report(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.nodes[uid]; l != nil {
		l.shown = true
	}
}

func (m *missing) over(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, uid)
}

// noteMissing reports once, while it lasts, that a Ready Node has no server. It requires a
// recent list of the cluster's own project, such as that of find just before: with a wrong
// token, it is called for all Nodes again and again.
func (i *Instances) noteMissing(ctx context.Context, node *corev1.Node) error {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return nil
	}
	if ready := kube.Condition(node, corev1.NodeReady); ready == nil || ready.Status != corev1.ConditionTrue {
		i.missing.over(node.UID)
		return nil
	}
	if !i.missing.lasts(node.UID, time.Now()) {
		return nil
	}
	nodes, err := i.Nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	servers, err := i.Machines.Cloud.List(ctx, time.Now().Add(-freshEnough))
	if err != nil {
		return err
	}
	ix := i.Machines.of(servers)
	if ix.byID[id] != nil || ix.doubt(nodes) != nil {
		return nil
	}
	i.missing.report(node.UID)
	successor := ""
	if at := slices.IndexFunc(servers, func(s Machine) bool { return s.Name == node.Name }); at >= 0 {
		successor = fmt.Sprintf(", and %d has the Node's name", servers[at].ID)
	}
	i.Recorder.Eventf(node, corev1.EventTypeWarning, EventServerMissing,
		"the project has no server with the ID %d of the Node's provider ID%s; routes and load balancers go on leading to the server that is gone: delete the Node and restart its kubelet, so that it joins anew", id, successor)
	return nil
}
