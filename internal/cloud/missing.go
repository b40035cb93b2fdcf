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

// EventServerMissing: a Node is Ready, and the project has no server with the ID of
// its provider ID. So it is with a server that was replaced under the Node's name
// while nobody judged the Node: the new kubelet goes on with the Node that it finds,
// and routes and targets go on leading to the old server. A provider ID can't be
// changed, so a person has to delete the Node.
const EventServerMissing = "ServerMissing"

// missingLong is how long a server is to be missing at least: a Node whose server
// was just deleted is Ready until nobody has heard of its kubelet for a while.
const missingLong = 2 * time.Minute

// missing remembers since when Nodes' servers were missing, and of which that was
// told. The zero value is ready for use.
type missing struct {
	mu    sync.Mutex
	nodes map[types.UID]*lack
}

type lack struct {
	since time.Time
	told  bool
}

// lasts reports whether the Node's server has been missing for long, which wasn't
// told yet.
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
	return !l.told && now.Sub(l.since) >= missingLong
}

// tell takes in that it is told.
func (m *missing) tell(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.nodes[uid]; l != nil {
		l.told = true
	}
}

// over forgets a Node that has its server, or isn't Ready.
func (m *missing) over(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, uid)
}

// noteMissing tells once, while it lasts, that a Ready Node has no server. A new
// list has to show that, and to be of the cluster's own project. The one that find has
// just asked for will do: with the wrong token all Nodes come here, round for round.
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
	i.missing.tell(node.UID)
	successor := ""
	if at := slices.IndexFunc(servers, func(s Machine) bool { return s.Name == node.Name }); at >= 0 {
		successor = fmt.Sprintf(", and %d has the Node's name", servers[at].ID)
	}
	i.Recorder.Eventf(node, corev1.EventTypeWarning, EventServerMissing,
		"the project has no server with the ID %d of the Node's provider ID%s; routes and load balancers go on leading to the server that is gone: delete the Node and restart its kubelet, so that it joins anew", id, successor)
	return nil
}
