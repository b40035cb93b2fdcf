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

// report is something that a Node says of its server and that the server list
// doesn't confirm.
type report struct {
	reporter
	address netip.Addr // the zero Addr: the report is about which server it is
}

// reporter is the Node that says something.
type reporter struct {
	node types.UID
	name string
}

// reports are when a Node's were first seen, by address.
type reports map[netip.Addr]time.Time

// forget drops what is too old.
func (r reports) forget(now time.Time) {
	maps.DeleteFunc(r, func(_ netip.Addr, first time.Time) bool { return now.Sub(first) >= reportMemory })
}

const (
	// reportMemory is how long it is remembered when a report was first seen. A
	// report that still isn't confirmed then is looked up again.
	reportMemory = time.Hour
)

// look returns the server list, in which everything that the Nodes say of their
// servers has been looked up at least once since they said so, and everything
// about these Nodes' servers is as it was at since or later. The zero since
// leaves that to the cache.
func (x *Machines) look(ctx context.Context, since time.Time, nodes ...*corev1.Node) (*index, error) {
	list, err := x.Cloud.List(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	ix := x.of(list)
	var questions []Question
	unnamed := map[*corev1.Node]time.Time{}
	for _, node := range nodes {
		for _, q := range x.questions(ix, node, since) {
			questions = append(questions, q)
			if q.Name != "" {
				unnamed[node] = q.Since
			}
		}
	}
	if len(questions) == 0 {
		return ix, nil
	}
	if list, err = x.Cloud.Look(ctx, questions); err != nil {
		return nil, err
	}
	ix = x.of(list)
	// Whose the Node's addresses are, if no server has its name or two servers are
	// possible, only a whole list tells.
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

// questions returns what is to be known of the Node's server. A Node without a
// provider ID may be the successor of another that had its name, so that what
// is known of the name must be as new as the Node: the kubelet that made it runs
// on its server.
func (x *Machines) questions(ix *index, node *corev1.Node, since time.Time) []Question {
	now := time.Now()
	newer := func(t time.Time) time.Time {
		if t.Before(since) {
			return since
		}
		return t
	}
	born := func() time.Time { return newer(x.born(node, now)) }
	if node.Spec.ProviderID == "" {
		return []Question{{Name: node.Name, Since: born()}}
	}
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return nil
	}
	server := ix.byID[id]
	switch {
	case server == nil:
		return []Question{{ID: id, Since: born()}}
	case !since.IsZero():
		return []Question{{ID: id, Since: since}}
	case ix.attached == 0: // nothing is known of private addresses
		return nil
	}
	var out []Question
	for _, a := range reported(node) {
		if !a.Is4() || a == server.PrivateIP || a == server.PublicIPv4 || slices.Contains(server.AliasIPs, a) {
			continue
		}
		if heard, ok := x.hear(report{reporter{node.UID, node.Name}, a}, now); ok {
			out = append(out, Question{ID: id, Since: heard})
		}
	}
	return out
}

// born is when the Node was there at the latest: made, or first seen by our own clock,
// because the API server's may be ahead. That one tells seconds, and what was known
// earlier in the same second may lack a server whose kubelet made the Node after that.
func (x *Machines) born(node *corev1.Node, now time.Time) time.Time {
	heard, _ := x.hear(report{reporter: reporter{node.UID, node.Name}}, now)
	return earlier(node.CreationTimestamp.Add(time.Second), heard)
}

// hear returns when a report was first seen, unless the Node makes too many within
// reportMemory: kubelets report addresses, and each costs a request. By
// our own clock: the Node's age is told by another.
func (x *Machines) hear(c report, now time.Time) (first time.Time, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(now)
	heard := x.reports[c.reporter]
	heard.forget(now)
	if first, ok := heard[c.address]; ok {
		return first, true
	}
	addresses := len(heard)
	if _, ok := heard[netip.Addr{}]; ok {
		addresses--
	}
	if c.address.IsValid() && addresses >= kube.MostReported {
		return time.Time{}, false
	}
	if heard == nil {
		heard = reports{}
		x.reports[c.reporter] = heard
	}
	heard[c.address] = now
	return now, true
}

// forget drops what is too old, of all Nodes: rarely, because all may report at once.
func (x *Machines) forget(now time.Time) {
	if x.reports == nil {
		x.reports, x.swept = map[reporter]reports{}, now
	}
	if now.Sub(x.swept) < reportMemory {
		return
	}
	x.swept = now
	maps.DeleteFunc(x.reports, func(_ reporter, heard reports) bool {
		heard.forget(now)
		return len(heard) == 0
	})
}
