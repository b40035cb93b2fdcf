package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

// fakeAPI is an API server that knows Nodes, ServiceCIDRs, the ledger's ConfigMaps and whether an admission
// policy stands, as an http.RoundTripper. It holds each change against what must never happen
// (see invariants_test.go), and refuses every request that the controller has no business to send.
type fakeAPI struct {
	fakeapi.History
	uids     int
	nodes    *fakeapi.Collection
	services *fakeapi.Collection
	ledger   configMaps
	policy   bool // the admission policy and its binding are there

	faults func(call) fault // what happens to the next request; nil: nothing
	late   []func()         // writes that will be applied after the client gave up

	calls  map[string]int // requests by "VERB resource", answered or not
	order  []string       // the writes among them, with the name of what they write
	writes map[types.UID]int
	byUs   map[types.UID]bool // whose podCIDRs a PATCH set
	log    []string
	invariants
}

func newFakeAPI() *fakeAPI {
	f := &fakeAPI{
		ledger: configMaps{objects: map[string]*corev1.ConfigMap{}, version: 1000, limit: 1 << 20},
		calls:  map[string]int{}, writes: map[types.UID]int{}, byUs: map[types.UID]bool{},
	}
	f.nodes, f.services = f.Collection("v1", "Node"), f.Collection("networking.k8s.io/v1", "ServiceCIDR")
	f.invariants = newUmpire(f)
	return f
}

// note adds a line to the history. The caller holds the lock.
func (f *fakeAPI) note(format string, args ...any) {
	f.log = append(f.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// putNode makes a new version of a Node known. The caller holds the lock.
func (f *fakeAPI) putNode(kind watch.EventType, node *corev1.Node) {
	f.nodes.Put(kind, node)
	f.note("%-8s %s/%s %s %v", kind, node.Name, node.UID, node.Spec.ProviderID, node.Spec.PodCIDRs)
	if kind == watch.Deleted {
		f.invariants.departed(node)
	}
}

// node returns the Node as it is now, or nil. The caller holds the lock.
func (f *fakeAPI) node(name string) *corev1.Node {
	node, _ := f.nodes.Objects[name].(*corev1.Node)
	return node
}

// shape is what a Node has from its creation on.
type shape func(*corev1.Node)

func (f *fakeAPI) newUID() types.UID {
	f.uids++
	return types.UID(fmt.Sprintf("uid-%d", f.uids))
}

// add creates a Node.
func (f *fakeAPI) add(name string, shapes ...shape) types.UID {
	f.Lock()
	defer f.Unlock()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: f.newUID(), CreationTimestamp: metav1.Now(),
	}}
	for _, shape := range shapes {
		shape(node)
	}
	f.putNode(watch.Added, node)
	return node.UID
}

// create adds a Node, with podCIDRs if any are given: those of a cluster that moved here, with
// managedFields that tell nothing.
func (f *fakeAPI) create(name string, podCIDRs ...string) types.UID {
	return f.add(name, func(node *corev1.Node) {
		if len(podCIDRs) > 0 {
			node.Spec.PodCIDR, node.Spec.PodCIDRs = podCIDRs[0], podCIDRs
		}
	})
}

// edit changes a Node, as another client would.
func (f *fakeAPI) edit(name string, change func(*corev1.Node)) {
	f.Lock()
	defer f.Unlock()
	node := f.node(name).DeepCopy()
	change(node)
	f.putNode(watch.Modified, node)
}

func (f *fakeAPI) heartbeat(name string) {
	f.edit(name, func(n *corev1.Node) { n.Annotations = map[string]string{"beat": time.Now().String()} })
}

func (f *fakeAPI) delete(name string) {
	f.Lock()
	defer f.Unlock()
	f.putNode(watch.Deleted, f.node(name).DeepCopy())
}

// addServiceCIDR creates a ServiceCIDR object, as an administrator would.
func (f *fakeAPI) addServiceCIDR(name string, cidrs ...string) {
	f.Lock()
	defer f.Unlock()
	f.services.Put(watch.Added, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: f.newUID(), CreationTimestamp: metav1.Now()},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
	})
	f.note("ServiceCIDR %s %v", name, cidrs)
}

// deleteServiceCIDR makes a ServiceCIDR disappear.
func (f *fakeAPI) deleteServiceCIDR(name string) {
	f.Lock()
	defer f.Unlock()
	f.services.Put(watch.Deleted, f.services.Objects[name].DeepCopyObject().(fakeapi.Object))
	f.note("ServiceCIDR %s deleted", name)
}

// inject makes faults decide what happens to requests from now on.
func (f *fakeAPI) inject(faults func(call) fault) {
	f.Lock()
	defer f.Unlock()
	f.faults = faults
}

// stall keeps watches and cached lists from learning anything more, until resume.
func (f *fakeAPI) stall() {
	f.Lock()
	defer f.Unlock()
	if f.Stall() {
		f.note("watches stall")
	}
}

func (f *fakeAPI) resume() {
	f.Lock()
	defer f.Unlock()
	if f.Resume() {
		f.note("watches go on")
	}
}

// live returns a copy of all Nodes, by name.
func (f *fakeAPI) live() map[string]*corev1.Node {
	f.Lock()
	defer f.Unlock()
	all := map[string]*corev1.Node{}
	for name := range f.nodes.Objects {
		all[name] = f.node(name).DeepCopy()
	}
	return all
}

func (f *fakeAPI) podCIDRs(name string) []netip.Prefix {
	node, ok := f.live()[name]
	if !ok {
		return nil
	}
	prefixes, _ := kube.PodCIDRs(node)
	return prefixes
}

// count returns how many requests of that kind ("PATCH nodes") arrived.
func (f *fakeAPI) count(kinds ...string) int {
	f.Lock()
	defer f.Unlock()
	n := 0
	for _, kind := range kinds {
		n += f.calls[kind]
	}
	return n
}

// sent returns how many requests to set podCIDRs arrived.
func (f *fakeAPI) sent() int { return f.count("PATCH nodes") }

// written returns how many requests to write anything arrived.
func (f *fakeAPI) written() int {
	return f.count("PATCH nodes", "PATCH nodes/status") + f.ledgerWrites()
}

// ledgerWrites returns how many requests to change the stored ledger arrived.
func (f *fakeAPI) ledgerWrites() int { return f.count("PUT configmaps", "POST configmaps") }

// trace returns the requests to write something since the last time, in order.
func (f *fakeAPI) trace() []string {
	f.Lock()
	defer f.Unlock()
	order := f.order
	f.order = nil
	return order
}

// String prints the history.
func (f *fakeAPI) String() string {
	f.Lock()
	defer f.Unlock()
	lines := slices.Clone(f.log)
	for _, name := range slices.Sorted(maps.Keys(f.ledger.objects)) {
		data := f.ledger.data(name)
		for _, key := range slices.Sorted(maps.Keys(data)) {
			lines = append(lines, name+" "+strconv.Quote(key)+": "+strconv.Quote(data[key]))
		}
	}
	return strings.Join(lines, "\n")
}
