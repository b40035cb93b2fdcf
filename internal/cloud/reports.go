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

// report is a Node's claim about its server that the server list doesn't confirm.
type report struct {
	reporter
	address netip.Addr // the zero Addr: the report is about the server's identity
}

type reporter struct {
	node types.UID
	name string
}

// reports holds when the reports of a Node were first observed, by address.
type reports map[netip.Addr]time.Time

func (r reports) forget(now time.Time) {
	maps.DeleteFunc(r, func(_ netip.Addr, first time.Time) bool { return now.Sub(first) >= reportMemory })
}

const (
	// reportMemory is the time until a report expires and, if still unconfirmed, is looked up
	// again.
	reportMemory = time.Hour
)

// look returns the server list, in which all reports of the Nodes have been looked up at least
// once since they were made, and the servers of these Nodes are as of since or later; for the
// zero time, the cache decides.
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

// questions returns the required lookups for a Node's server. A Node without a provider ID may
// have replaced another with its name, so the lookup of the name must be as new as the Node: the
// kubelet that created it runs on its server.
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
	case ix.attached == 0: // no private address is listed
		return nil
	}
	var out []Question
	for _, a := range reported(node) {
		if !a.Is4() || a == server.PrivateIP || a == server.PublicIPv4 || slices.Contains(server.AliasIPs, a) {
			continue
		}
		if observed, ok := x.observeReport(report{reporter{node.UID, node.Name}, a}, now); ok {
			out = append(out, Question{ID: id, Since: observed})
		}
	}
	return out
}

// born returns a time at which the Node existed: its creation, or when it was first observed by the
// local clock, since the API server's may be ahead. Creation times are in whole seconds, and a list
// from earlier in the same second may lack a server with a kubelet that created the Node after it.
func (x *Machines) born(node *corev1.Node, now time.Time) time.Time {
	observed, _ := x.observeReport(report{reporter: reporter{node.UID, node.Name}}, now)
	return earlier(node.CreationTimestamp.Add(time.Second), observed)
}

// observeReport returns when a report was first observed by the local clock, and false if the Node made
// too many within reportMemory: each costs a request.
func (x *Machines) observeReport(c report, now time.Time) (first time.Time, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(now)
	observed := x.reports[c.reporter]
	observed.forget(now)
	if first, ok := observed[c.address]; ok {
		return first, true
	}
	addresses := len(observed)
	if _, ok := observed[netip.Addr{}]; ok {
		addresses--
	}
	if c.address.IsValid() && addresses >= kube.MostReported {
		return time.Time{}, false
	}
	if observed == nil {
		observed = reports{}
		x.reports[c.reporter] = observed
	}
	observed[c.address] = now
	return now, true
}

// forget removes the expired reports of all Nodes, rarely, because all may report at once.
func (x *Machines) forget(now time.Time) {
	if x.reports == nil {
		x.reports, x.swept = map[reporter]reports{}, now
	}
	if now.Sub(x.swept) < reportMemory {
		return
	}
	x.swept = now
	maps.DeleteFunc(x.reports, func(_ reporter, observed reports) bool {
		observed.forget(now)
		return len(observed) == 0
	})
}
