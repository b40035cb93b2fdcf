package controller

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// fakeAPI is an API server that knows Nodes, as an http.RoundTripper. It keeps every version of
// every Node, so that watches and cached lists can lag behind honestly: late, but in order and
// complete. It checks each change for overlapping podCIDRs, and refuses every write that the
// controller has no business to do.
type fakeAPI struct {
	mu      sync.Mutex
	uids    int
	nodes   map[string]*corev1.Node
	history []version     // index = resource version - 1
	changed chan struct{} // closed with the next change

	faults  func(method string) fault // what happens to the next request; nil: nothing
	lag     func() time.Duration      // how late the next watch event is; nil: not at all
	stalled chan struct{}             // while not nil: watches and cached lists stay where they are
	horizon int                       // the resource version at which they stay
	late    []func()                  // writes that were applied, or will be, after the client gave up

	patches map[string]int // PATCH requests by Node name
	writes  map[types.UID]int
	byUs    map[types.UID]bool // whose podCIDRs a PATCH set
	log     []string
	overlap []string
}

// version is a Node as it was from one resource version on.
type version struct {
	kind watch.EventType
	node *corev1.Node
}

// fault says what goes wrong with a request.
type fault struct {
	delay   time.Duration // before anything happens
	refuse  bool          // nothing is applied, the reply is 503
	lose    bool          // applied, but the connection breaks
	late    time.Duration // the connection breaks, applied so much later
	answer  error         // nothing is applied, this is the reply
	page    bool          // nothing is applied, something in between answers 404 with a page of its own
	cutDown bool          // podCIDRs is cut down to its first entry, as if podCIDR had differed
}

var errConnection = errors.New("fake: connection lost")

var nodeResource = schema.GroupResource{Resource: "nodes"}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{
		nodes: map[string]*corev1.Node{}, changed: make(chan struct{}),
		patches: map[string]int{}, writes: map[types.UID]int{}, byUs: map[types.UID]bool{},
	}
}

// put makes a new version known. The caller holds the lock.
func (f *fakeAPI) put(kind watch.EventType, node *corev1.Node) {
	node.ResourceVersion = strconv.Itoa(len(f.history) + 1)
	f.history = append(f.history, version{kind, node.DeepCopy()})
	if kind == watch.Deleted {
		delete(f.nodes, node.Name)
	} else {
		f.nodes[node.Name] = node
		f.check(node)
	}
	f.log = append(f.log, fmt.Sprintf("%s %-8s %s/%s %v", time.Now().Format("15:04:05"), kind, node.Name, node.UID, node.Spec.PodCIDRs))
	close(f.changed)
	f.changed = make(chan struct{})
}

// check notes where podCIDRs that we set overlap others that we set.
func (f *fakeAPI) check(node *corev1.Node) {
	mine, _ := kube.PodCIDRs(node)
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		other := f.nodes[name]
		if other.UID == node.UID || !f.byUs[other.UID] || !f.byUs[node.UID] {
			continue
		}
		theirs, _ := kube.PodCIDRs(other)
		for _, p := range mine {
			if slices.ContainsFunc(theirs, p.Overlaps) {
				f.overlap = append(f.overlap, fmt.Sprintf("%s and %s both have %s", node.Name, name, p))
			}
		}
	}
}

// create adds a Node, with podCIDRs if any are given.
func (f *fakeAPI) create(name string, podCIDRs ...string) types.UID {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uids++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprintf("uid-%d", f.uids)), CreationTimestamp: metav1.Now(),
	}}
	node.Spec.PodCIDRs = podCIDRs
	if len(podCIDRs) > 0 {
		node.Spec.PodCIDR = podCIDRs[0]
	}
	f.put(watch.Added, node)
	return node.UID
}

// edit changes a Node, as another client would.
func (f *fakeAPI) edit(name string, change func(*corev1.Node)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.nodes[name].DeepCopy()
	change(node)
	f.put(watch.Modified, node)
}

func (f *fakeAPI) heartbeat(name string) {
	f.edit(name, func(n *corev1.Node) { n.Labels = map[string]string{"beat": time.Now().String()} })
}

func (f *fakeAPI) delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(watch.Deleted, f.nodes[name].DeepCopy())
}

// inject makes faults decide what happens to requests from now on.
func (f *fakeAPI) inject(faults func(method string) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

// stall keeps watches and cached lists from learning anything more, until resume.
func (f *fakeAPI) stall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stalled == nil {
		f.stalled, f.horizon = make(chan struct{}), len(f.history)
	}
}

func (f *fakeAPI) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stalled != nil {
		close(f.stalled)
		f.stalled = nil
	}
}

// settle applies what is still on its way.
func (f *fakeAPI) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, apply := range f.late {
		apply()
	}
	f.late = nil
}

// live returns a copy of all Nodes, by name.
func (f *fakeAPI) live() map[string]*corev1.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]*corev1.Node{}
	for name, node := range f.nodes {
		all[name] = node.DeepCopy()
	}
	return all
}

func (f *fakeAPI) podCIDRs(name string) []netip.Prefix {
	prefixes, _ := kube.PodCIDRs(f.live()[name])
	return prefixes
}

// sent returns how many PATCH requests arrived.
func (f *fakeAPI) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, count := range f.patches {
		n += count
	}
	return n
}

// String prints the history.
func (f *fakeAPI) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, "\n")
}
