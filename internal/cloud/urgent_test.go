package cloud_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/requests"
)

// overheard records the lowest priority of the requests.
type overheard struct {
	*project
	lowest requests.Priority
	asked  int
}

func (o *overheard) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	o.lowest, o.asked = min(o.lowest, requests.PriorityOf(ctx)), o.asked+1
	return o.project.List(ctx, since)
}

func (o *overheard) Look(ctx context.Context, q []cloud.Question) ([]cloud.Machine, error) {
	o.lowest, o.asked = min(o.lowest, requests.PriorityOf(ctx)), o.asked+1
	return o.project.Look(ctx, q)
}

// Changes of routes are urgent, and so are the reads that they need: while the budget is low a
// deletion would wait for its list of servers behind everything else.
func TestReadsForRoutesAreUrgent(t *testing.T) {
	o := &overheard{
		project: &project{servers: []cloud.Machine{server(1, "n1", "10.0.0.2")}},
		lowest:  requests.Urgent,
	}
	nodes := []*corev1.Node{node("n1", withID(kube.FormatProviderID(1)))}
	g := &cloud.Machines{Cloud: o}
	if _, err := g.Gateways(t.Context(), nodes, true); err != nil {
		t.Fatal(err)
	}
	if err := g.Look(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	if o.lowest != requests.Urgent || o.asked < 3 {
		t.Errorf("asked %d times, at priority %s at least", o.asked, o.lowest)
	}
}
