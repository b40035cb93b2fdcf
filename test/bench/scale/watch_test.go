package scale_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// watcher observes every change of every Node, on its own connection to the API server, and
// compares the podCIDRs of each with those of all others that exist at that moment. Every range is
// a whole one of the pools, so two overlap only if they are equal, which checks of sizes ensure.
type watcher struct {
	mu      sync.Mutex
	holders map[netip.Prefix]types.UID
	names   map[types.UID]string
	has     map[types.UID][]netip.Prefix
	waiting map[string]*served
	leaving map[types.UID]time.Time    // since when each Node is being deleted
	left    map[netip.Prefix]time.Time // when each range was last released
	// quarantine is how long a range remains unused at least.
	quarantine time.Duration
	wrong      []string
	reused     int // ranges that were assigned again after a release
}

// served reports on one Node whether it has its podCIDRs.
type served struct {
	served  chan struct{} // closed when it has them
	created time.Time     // both by the local clock
	at      time.Time
}

func (s *served) waited() time.Duration { return s.at.Sub(s.created) }

func startWatching(ctx context.Context, tb testing.TB, client kubernetes.Interface) *watcher {
	tb.Helper()
	w := &watcher{
		holders: map[netip.Prefix]types.UID{}, names: map[types.UID]string{},
		has:     map[types.UID][]netip.Prefix{},
		waiting: map[string]*served{}, leaving: map[types.UID]time.Time{},
		left: map[netip.Prefix]time.Time{},
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	if len(list.Items) > 0 {
		tb.Fatalf("the cluster has %d Nodes already", len(list.Items))
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.follow(ctx, client, list.ResourceVersion)
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// follow watches without a gap: a watch that ends is continued from its last version, and if that
// is impossible, the test fails.
func (w *watcher) follow(ctx context.Context, client kubernetes.Interface, version string) {
	for ctx.Err() == nil {
		changes, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
			ResourceVersion: version, AllowWatchBookmarks: true,
		})
		if err != nil {
			w.fail("watching the Nodes: %v", err)
			return
		}
		for event := range changes.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok {
				w.fail("watching the Nodes: %v", event.Object)
				return
			}
			version = n.ResourceVersion
			if event.Type != watch.Bookmark {
				w.see(n, event.Type == watch.Deleted)
			}
		}
	}
}

func (w *watcher) see(n *corev1.Node, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	prefixes, err := kube.PodCIDRs(n)
	if err != nil {
		w.wrong = append(w.wrong, err.Error())
	}
	before := w.has[n.UID]
	if len(before) > 0 && !slices.Equal(before, prefixes) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s had %v and has %v", n.Name, before, prefixes))
	}
	if gone {
		for _, p := range before {
			delete(w.holders, p)
			w.left[p] = w.leaving[n.UID]
		}
		delete(w.has, n.UID)
		delete(w.names, n.UID)
		delete(w.leaving, n.UID)
		return
	}
	if len(before) > 0 || len(prefixes) == 0 {
		return
	}
	w.has[n.UID], w.names[n.UID] = prefixes, n.Name
	if len(prefixes) != 2 || prefixes[0].Bits() != 24 || prefixes[1].Bits() != 64 {
		w.wrong = append(w.wrong, fmt.Sprintf("%s has %v, want a /24 and a /64", n.Name, prefixes))
	}
	for _, p := range prefixes {
		w.take(n, p)
	}
	if s := w.waiting[n.Name]; s != nil {
		s.at = time.Now()
		close(s.served)
		delete(w.waiting, n.Name)
	}
}

// leaves records that a Node is about to be deleted: its quarantine can't begin earlier.
func (w *watcher) leaves(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaving[uid] = time.Now()
}

func (w *watcher) take(n *corev1.Node, p netip.Prefix) {
	if other, taken := w.holders[p]; taken {
		w.wrong = append(w.wrong, fmt.Sprintf("%s went to %s while %s has it", p, n.Name, w.names[other]))
	}
	w.holders[p] = n.UID
	left, used := w.left[p]
	if !used {
		return
	}
	w.reused++
	if pause := time.Since(left); pause < w.quarantine {
		w.wrong = append(w.wrong, fmt.Sprintf("%s went to %s %s after another Node had it, within the quarantine of %s", p, n.Name, pause, w.quarantine))
	}
}

func (w *watcher) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// expect waits for the podCIDRs of a Node that is about to be created.
func (w *watcher) expect(name string) *served {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &served{served: make(chan struct{}), created: time.Now()}
	w.waiting[name] = s
	return s
}

// await returns when want Nodes have podCIDRs.
func (w *watcher) await(ctx context.Context, tb testing.TB, want int) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		w.mu.Lock()
		got := len(w.has)
		w.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("%d of %d Nodes have podCIDRs: %v", got, want, context.Cause(ctx))
		}
	}
}

// found returns the errors so far, and how many ranges were reused.
func (w *watcher) found() (wrong []string, reused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrong), w.reused
}
