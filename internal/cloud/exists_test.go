package cloud_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// lacking is a project whose list lacks an existing server, however new the list is.
type lacking struct {
	*project
	id int64
}

func (l lacking) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	list, err := l.project.List(ctx, since)
	lacks := func(s cloud.Machine) bool { return s.ID == l.id }
	return slices.DeleteFunc(slices.Clone(list), lacks), err
}

// A Node whose server is missing only in the list is not treated as deleted: the server itself is
// requested, and that result counts.
func TestAServerThatOnlyTheListLacksExists(t *testing.T) {
	p := &project{servers: []cloud.Machine{server(1, "n1", "10.0.0.2"), server(2, "n2", "10.0.0.3")}}
	unready := withCondition(corev1.NodeReady, corev1.ConditionUnknown)
	one := node("n1", withID(kube.FormatProviderID(1)), unready)
	i := instances(p, one, node("n2", withID(kube.FormatProviderID(2)), unready))
	i.Machines.Cloud = lacking{p, 1}
	if exists, err := i.InstanceExists(t.Context(), one); !exists || err != nil {
		t.Errorf("exists %t, %v; want that it does", exists, err)
	}
	if !slices.Contains(p.asked, "get 1") {
		t.Errorf("asked %q, want the server by itself", p.asked)
	}
}

// A kubelet with a clock that is ahead changes nothing: the list of the last minute is enough.
func TestAConditionInTheFutureRequestsNoNewList(t *testing.T) {
	p := &project{servers: []cloud.Machine{server(1, "n1", "10.0.0.2")}}
	n := node("n1", withID(kube.FormatProviderID(1)), withCondition(corev1.NodeReady, corev1.ConditionFalse))
	n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Hour))
	i := instances(p, n)
	newest := &newestList{project: p}
	i.Machines.Cloud = newest
	if exists, err := i.InstanceExists(t.Context(), n); !exists || err != nil {
		t.Errorf("exists %t, %v", exists, err)
	}
	if newest.since.IsZero() || time.Since(newest.since) < 30*time.Second {
		t.Errorf("requested a list as of %s", newest.since)
	}
}

// newestList remembers the newest time as of which a list was requested.
type newestList struct {
	*project
	since time.Time
}

func (l *newestList) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	if since.After(l.since) {
		l.since = since
	}
	return l.project.List(ctx, since)
}
