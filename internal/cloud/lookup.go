package cloud

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// look returns the server list, in which the servers of these Nodes are as of since or later; for
// the zero time, those that it lacks or finds only by name are as new as their Nodes.
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
	if q.Since = since; q.ID == 0 || ix.byID[id] == nil {
		if born := x.born(node); born.After(since) {
			q.Since = born
		}
		return q, true
	}
	return q, !since.IsZero()
}

// aheadFor bounds the time for which the API server's clock may be ahead.
const aheadFor = time.Hour

// born returns a time at which the Node existed: its creation or, if that is in the future by the
// local clock, when the Node was first observed. Creation times are in whole seconds, and a list
// from earlier in the same second may lack a server with a kubelet that created the Node after it.
func (x *Machines) born(node *corev1.Node) time.Time {
	now, created := time.Now(), node.CreationTimestamp.Add(time.Second)
	x.mu.Lock()
	defer x.mu.Unlock()
	if observed, ok := x.early[node.UID]; ok {
		return observed
	}
	if !created.After(now) {
		return created
	}
	if x.early == nil {
		x.early = map[types.UID]time.Time{}
	}
	maps.DeleteFunc(x.early, func(_ types.UID, observed time.Time) bool {
		return now.Sub(observed) >= aheadFor
	})
	x.early[node.UID] = now
	return now
}
