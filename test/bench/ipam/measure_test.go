package ipam_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ledgerName is the prefix of the names of the ConfigMaps in kube-system with the stored ledger.
const ledgerName = "underlay-node-ipam"

// measurement is the audit log's result about some Nodes.
type measurement struct {
	nodes        int
	seconds      float64 // from the first creation to the last podCIDR
	writing      float64 // from the first podCIDR to the last
	median, late float64 // seconds from creation to podCIDR; late is the 99th percentile
	last         time.Time
	patched      int       // Nodes that were written
	patches      int       // requests for it, successful or not
	ledgerWrites int       // in the same time
	otherWrites  int       // of the same account in the same time: Events, conditions
	served       []float64 // seconds from the first creation to Nodes' podCIDRs, ascending
}

// measure evaluates the audit log for the Nodes of a prefix.
func (f *field) measure(b *testing.B, c contender, prefix string, nodes int) measurement {
	b.Helper()
	events, err := f.ControlPlane.Audit()
	if err != nil {
		b.Fatal(err)
	}
	created, written := map[string]time.Time{}, map[string]time.Time{}
	m := measurement{nodes: nodes}
	var ledger, other []time.Time
	var firstCreated, firstWritten time.Time
	for _, e := range events {
		switch {
		case e.Resource == "configmaps" && strings.HasPrefix(e.Name, ledgerName) && e.User == c.user && e.Code < 300:
			ledger = append(ledger, e.Time)
		case e.Verb == "create" && e.Resource == "nodes" && e.Code == 201 && strings.HasPrefix(e.Name, prefix):
			created[e.Name] = e.Time
			firstCreated = earlier(firstCreated, e.Time)
		case e.Verb == "patch" && e.Resource == "nodes" && e.Subresource == "" && e.User == c.user && strings.HasPrefix(e.Name, prefix):
			m.patches++
			if e.Code == 200 {
				written[e.Name] = e.Time
				firstWritten = earlier(firstWritten, e.Time)
				m.last = later(m.last, e.Time)
			}
		case e.User == c.user:
			other = append(other, e.Time)
		}
	}
	m.patched = len(written)
	m.seconds, m.writing = m.last.Sub(firstCreated).Seconds(), m.last.Sub(firstWritten).Seconds()
	m.median, m.late = latencies(created, written)
	for _, t := range written {
		m.served = append(m.served, t.Sub(firstCreated).Seconds())
	}
	slices.Sort(m.served)
	during := func(t time.Time) bool { return t.After(firstCreated) && !t.After(m.last) }
	m.ledgerWrites, m.otherWrites = count(ledger, during), count(other, during)
	return m
}

func count(times []time.Time, is func(time.Time) bool) int {
	n := 0
	for _, t := range times {
		if is(t) {
			n++
		}
	}
	return n
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func latencies(created, written map[string]time.Time) (median, late float64) {
	var all []float64
	for name, t := range written {
		all = append(all, t.Sub(created[name]).Seconds())
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// createNodes creates Nodes as kubelets do, many at once.
func (f *field) createNodes(
	ctx context.Context, b *testing.B, prefix string, n int, tell chan<- *corev1.Node,
) {
	b.Helper()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error {
			return f.create(ctx, fmt.Sprintf("%s%04d", prefix, i), tell)
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func (f *field) create(ctx context.Context, name string, tell chan<- *corev1.Node) error {
	node, err := f.admin.CoreV1().Nodes().Create(ctx, newNode(name), metav1.CreateOptions{})
	if err == nil && tell != nil {
		tell <- node
	}
	return err
}

// announce sends the existing Nodes.
func (f *field) announce(
	ctx context.Context, b *testing.B, prefix string, tell chan<- *corev1.Node,
) {
	b.Helper()
	list, err := f.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, prefix) {
			tell <- &list.Items[i]
		}
	}
}

func newNode(name string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}},
	}
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady,
	} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "AsReported", Message: "what a kubelet says about itself",
		})
	}
	return n
}

// await waits until the Nodes of a prefix have podCIDRs. It polls rarely and reads the API server's
// cache: polling must not affect the measurement.
func (f *field) await(ctx context.Context, b *testing.B, prefix string, want int) {
	b.Helper()
	got := 0
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true,
		func(ctx context.Context) (bool, error) {
			list, err := f.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return false, err
			}
			got = 0
			for i := range list.Items {
				if n := &list.Items[i]; strings.HasPrefix(n.Name, prefix) && len(n.Spec.PodCIDRs) == 2 {
					got++
				}
			}
			return got == want, nil
		})
	if err != nil {
		b.Fatalf("%d of %d Nodes %s* have podCIDRs: %v", got, want, prefix, context.Cause(ctx))
	}
}

// clear removes the results of a run: all Nodes, and their entries in the stored ledger, which
// don't concern the next run. The ledger itself remains: without it, Underlay would wait for
// requests of a former process.
func (f *field) clear(ctx context.Context, b *testing.B) {
	b.Helper()
	if err := f.admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	maps := f.admin.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		shard := &list.Items[i]
		if mark := shard.Data["_shard"]; strings.HasPrefix(shard.Name, ledgerName) && mark != "" {
			shard.Data = map[string]string{"_shard": mark}
			if _, err := maps.Update(ctx, shard, metav1.UpdateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
