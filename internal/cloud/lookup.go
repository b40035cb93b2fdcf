package cloud

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// look returns the server list, in which the servers of these Nodes are as of since or later; for
// the zero time, those that it lacks or finds only by name are as new as their Nodes, and those of
// which Nodes report other addresses are as new as the contradiction.
func (x *Machines) look(
	ctx context.Context, since time.Time, nodes ...*corev1.Node,
) (*index, error) {
	list, err := x.Cloud.List(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	ix := x.of(list)
	var questions []Question
	unnamed := map[*corev1.Node]time.Time{}
	for _, node := range nodes {
		q, open := x.question(ix, node, since)
		if open {
			questions = append(questions, q)
		}
		if q.Name != "" {
			unnamed[node] = q.Since
		}
	}
	if len(questions) == 0 {
		return ix, nil
	}
	if list, err = x.Cloud.Look(ctx, questions); err != nil {
		return nil, err
	}
	ix = x.of(list)
	// If no server has the Node's name or two servers match, only a whole list shows the owner
	// of the Node's addresses.
	var whole time.Time
	for node, since := range unnamed {
		if len(ix.candidates(node)) != 1 && since.After(whole) {
			whole = since
		}
	}
	if whole.IsZero() {
		return ix, nil
	}
	if list, err = x.Cloud.List(ctx, whole); err != nil {
		return nil, err
	}
	return x.of(list), nil
}

// question returns the required lookup of a Node's server, and false if none is. A Node without a
// provider ID may have replaced another with its name, so the lookup of the name must be as new as
// the Node: the kubelet that created it runs on its server.
func (x *Machines) question(
	ix *index, node *corev1.Node, since time.Time,
) (q Question, open bool) {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	switch {
	case node.Spec.ProviderID == "":
		q.Name = node.Name
	case err != nil:
		return q, false
	default:
		q.ID = id
	}
	m := ix.byID[id]
	switch {
	case q.ID == 0 || m == nil:
		q.Since = x.born(node)
	case ix.attached > 0 && contradicts(node, m): // otherwise no private address is listed
		q.Since = x.observed(observation{node.UID, true})
	}
	if since.After(q.Since) {
		q.Since = since
	}
	return q, !q.Since.IsZero()
}

// contradicts reports whether the Node reports an IPv4 address that its server doesn't have.
func contradicts(node *corev1.Node, m *Machine) bool {
	return slices.ContainsFunc(reported(node), func(a netip.Addr) bool {
		return a.Is4() && a != m.PrivateIP && a != m.PublicIPv4 && !slices.Contains(m.AliasIPs, a)
	})
}

// born returns a time at which the Node existed: its creation, or when it was first observed by the
// local clock, since the API server's may be ahead. Creation times are in whole seconds, and a list
// from earlier in the same second may lack a server with a kubelet that created the Node after it.
func (x *Machines) born(node *corev1.Node) time.Time {
	created := node.CreationTimestamp.Add(time.Second)
	if observed := x.observed(observation{node.UID, false}); observed.Before(created) {
		return observed
	}
	return created
}

// observation is that a Node exists, or that it contradicts the server list.
type observation struct {
	node        types.UID
	contradicts bool
}

// remembered is how long an observation is kept. A Node that contradicts the server list costs a
// lookup of its server in each period.
const remembered = time.Hour

// observed returns when the observation was first made.
func (x *Machines) observed(o observation) time.Time {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if now.Sub(x.swept) >= remembered {
		x.swept = now
		expired := func(_ observation, first time.Time) bool { return now.Sub(first) >= remembered }
		maps.DeleteFunc(x.observations, expired)
	}
	first, ok := x.observations[o]
	if !ok || now.Sub(first) >= remembered {
		if x.observations == nil {
			x.observations = map[observation]time.Time{}
		}
		first = now
		x.observations[o] = first
	}
	return first
}
