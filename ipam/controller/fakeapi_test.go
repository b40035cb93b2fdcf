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

// fakeAPI is an API server with Nodes, ServiceCIDRs, the ledger's ConfigMaps and the admission
// policy, as an http.RoundTripper. It checks each change against the invariants (see
// invariants_test.go), and panics at a request that the controller must not send.
type fakeAPI struct {
	fakeapi.History
	uids     int
	nodes    *fakeapi.Collection
	services *fakeapi.Collection
	ledger   configMaps
	policy   bool // the admission policy and its binding exist

	faults func(call) fault // the fault of the next request; nil: none
	late   []func()         // writes to apply after the client gave up

	calls  map[string]int // requests by "VERB resource", also failed ones
	order  []string       // the writes among them, with the object's name
	writes map[types.UID]int
	byUs   map[types.UID]bool // the Nodes that got their podCIDRs from a PATCH
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

// putNode stores and publishes a new version of a Node. The caller holds the lock.
func (f *fakeAPI) putNode(kind watch.EventType, node *corev1.Node) {
	f.nodes.Put(kind, node)
	f.note("%-8s %s/%s %s %v", kind, node.Name, node.UID, node.Spec.ProviderID, node.Spec.PodCIDRs)
	if kind == watch.Deleted {
		f.invariants.departed(node)
	}
}

// node returns the current Node, or nil. The caller holds the lock.
func (f *fakeAPI) node(name string) *corev1.Node {
	node, _ := f.nodes.Objects[name].(*corev1.Node)
	return node
}

// shape sets fields of a Node before its creation.
type shape func(*corev1.Node)

func (f *fakeAPI) newUID() types.UID {
	f.uids++
	return types.UID(fmt.Sprintf("uid-%d", f.uids))
}

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

// create adds a Node, with podCIDRs if any are given, as in a cluster that moved here: its
// managedFields don't name the manager.
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

func (f *fakeAPI) addServiceCIDR(name string, cidrs ...string) {
	f.Lock()
	defer f.Unlock()
	f.services.Put(watch.Added, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: f.newUID(), CreationTimestamp: metav1.Now()},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
	})
	f.note("ServiceCIDR %s %v", name, cidrs)
}

func (f *fakeAPI) deleteServiceCIDR(name string) {
	f.Lock()
	defer f.Unlock()
	f.services.Put(watch.Deleted, f.services.Objects[name].DeepCopyObject().(fakeapi.Object))
	f.note("ServiceCIDR %s deleted", name)
}

// inject sets the faults of all following requests.
func (f *fakeAPI) inject(faults func(call) fault) {
	f.Lock()
	defer f.Unlock()
	f.faults = faults
}

// stall freezes watches and cached lists until resume.
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

// count returns the number of requests of these kinds ("PATCH nodes").
func (f *fakeAPI) count(kinds ...string) int {
	f.Lock()
	defer f.Unlock()
	n := 0
	for _, kind := range kinds {
		n += f.calls[kind]
	}
	return n
}

// sent returns the number of requests to set podCIDRs.
func (f *fakeAPI) sent() int { return f.count("PATCH nodes") }

// written returns the number of requests to write anything.
func (f *fakeAPI) written() int {
	return f.count("PATCH nodes", "PATCH nodes/status") + f.ledgerWrites()
}

// ledgerWrites returns the number of requests to write the stored ledger.
func (f *fakeAPI) ledgerWrites() int { return f.count("PUT configmaps", "POST configmaps") }

// trace returns the write requests since the last call, in order.
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
