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
	node    types.UID
	name    string
	address netip.Addr // the zero Addr: the report is about which server it is
}

const (
	// reportMemory is how long it is remembered when a report was first seen. A
	// report that still isn't confirmed then is looked up again.
	reportMemory = time.Hour
	// mostAddressReports is how many addresses of one Node are looked up within
	// reportMemory. Kubelets report addresses, so they could cost any number of
	// requests.
	mostAddressReports = 5
)

// look returns the server list, in which everything that the Nodes say of their
// servers has been looked up at least once since they said so, and everything
// about these Nodes' servers is as it was at since or later. The zero since
// leaves that to the cache.
func (x *Index) look(ctx context.Context, servers Servers, since time.Time, nodes ...*corev1.Node) (*index, error) {
	list, err := servers.List(ctx, time.Time{})
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
	if list, err = servers.Look(ctx, questions); err != nil {
		return nil, err
	}
	ix = x.of(list)
	// Whose the Node's addresses are, if no server has its name or two servers are
	// possible, only a whole list tells.
	var whole time.Time
	for node, since := range unnamed {
		if _, err := ix.match(node); err != nil && since.After(whole) {
			whole = since
		}
	}
	if whole.IsZero() {
		return ix, nil
	}
	if list, err = servers.List(ctx, whole); err != nil {
		return nil, err
	}
	return x.of(list), nil
}

// questions returns what is to be known of the Node's server. A Node without a
// provider ID may be the successor of another that had its name, so that what
// is known of the name must be as new as the Node: the kubelet that made it runs
// on its server.
func (x *Index) questions(ix *index, node *corev1.Node, since time.Time) []Question {
	now := time.Now()
	newer := func(t time.Time) time.Time {
		if t.Before(since) {
			return since
		}
		return t
	}
	born := func() time.Time {
		heard, _ := x.hear(report{node: node.UID, name: node.Name}, now)
		return newer(earlier(node.CreationTimestamp.Time, heard))
	}
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
	for _, a := range slices.Concat(kube.InternalIPs(node), kube.ProvidedIPs(node)) {
		if !a.Is4() || a == server.PrivateIP || a == server.PublicIPv4 || slices.Contains(server.AliasIPs, a) {
			continue
		}
		if heard, ok := x.hear(report{node.UID, node.Name, a}, now); ok {
			out = append(out, Question{ID: id, Since: heard})
		}
	}
	return out
}

// hear returns when a report was first seen, unless the Node makes too many. By
// our own clock: the Node's age is told by another.
func (x *Index) hear(c report, now time.Time) (first time.Time, ok bool) {
	if x == nil {
		return now, true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if first, ok := x.reports[c]; ok && now.Sub(first) < reportMemory {
		return first, true
	}
	maps.DeleteFunc(x.reports, func(_ report, first time.Time) bool { return now.Sub(first) >= reportMemory })
	addresses := 0
	for other := range x.reports {
		if other.node == c.node && other.name == c.name && other.address.IsValid() {
			addresses++
		}
	}
	if c.address.IsValid() && addresses >= mostAddressReports {
		return time.Time{}, false
	}
	if x.reports == nil {
		x.reports = map[report]time.Time{}
	}
	x.reports[c] = now
	return now, true
}
