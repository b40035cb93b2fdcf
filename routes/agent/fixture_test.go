package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// machine is a fake kernel that stores routes, sends events, and prints itself. It rejects the
// requests that the real one rejects.
type machine struct {
	mu        sync.Mutex
	table     []Entry
	links     []Link
	neighbors map[netip.Addr]bool // by address: whether it is unresponsive
	writes    []string
	probes    []netip.Addr
	full      bool // rejects new routes
	proxies   []Proxy
	listErr   error
	listed    int
	happened  func(Event)
}

func (m *machine) List(context.Context) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed++
	return slices.Clone(m.table), m.listErr
}

func (m *machine) Links(context.Context) ([]Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.links), nil
}

func (m *machine) Add(_ context.Context, entries []Entry) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(entries))
	for i, e := range entries {
		errs[i] = m.add(e)
	}
	return errs
}

func (m *machine) add(e Entry) error {
	m.writes = append(m.writes, "add "+e.String())
	if m.full {
		return fmt.Errorf("adding %s: no buffer space available", e)
	}
	if slices.ContainsFunc(m.table, func(o Entry) bool { return o.Place() == e.Place() }) {
		return fmt.Errorf("adding %s: file exists", e)
	}
	if e.Kind == Unicast &&
		!slices.ContainsFunc(m.links, func(l Link) bool { return l.Index == e.Link && l.Up }) {
		return fmt.Errorf("adding %s: network is down", e)
	}
	if e.Via.IsValid() &&
		!slices.ContainsFunc(m.table, func(o Entry) bool {
			return o.Link == e.Link && !o.Via.IsValid() && o.Dst.Contains(e.Via)
		}) {
		return fmt.Errorf("adding %s: the gateway is no neighbor", e)
	}
	m.table = append(m.table, e)
	m.tell(Event{Kind: RouteSet, Route: e})
	return nil
}

func (m *machine) Replace(_ context.Context, to Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var old Entry
	if at := slices.IndexFunc(m.table, func(o Entry) bool {
		return o.Place() == to.Place()
	}); at >= 0 {
		old = m.table[at]
	}
	m.writes = append(m.writes, "replace "+old.String()+" by "+to.String())
	m.table = slices.DeleteFunc(m.table, func(o Entry) bool { return o.Place() == to.Place() })
	m.table = append(m.table, to)
	m.tell(Event{Kind: RouteSet, Route: to})
	return nil
}

func (m *machine) Delete(_ context.Context, e Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = append(m.writes, "delete "+e.String())
	m.remove(e)
	return nil
}

// remove removes an entry; m.mu is held.
func (m *machine) remove(e Entry) {
	if at := slices.Index(m.table, e); at >= 0 {
		m.table = slices.Delete(m.table, at, at+1)
		m.tell(Event{Kind: RouteGone, Route: e})
	}
}

func (m *machine) Neighbors(context.Context, int) ([]Neighbor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Neighbor
	for a, silent := range m.neighbors {
		all = append(all, Neighbor{Addr: a, Silent: silent})
	}
	return all, nil
}

func (m *machine) Probe(_ context.Context, _ int, a netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probes = append(m.probes, a)
	return nil
}

func (m *machine) Proxies(context.Context) ([]Proxy, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.proxies), nil
}

func (m *machine) AddProxy(_ context.Context, p Proxy) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = append(m.writes, "answer for "+p.String())
	if !slices.ContainsFunc(m.links, func(l Link) bool { return l.Index == p.Link }) {
		return fmt.Errorf("answering for %s: no such device", p)
	}
	m.proxies = slices.DeleteFunc(m.proxies, func(o Proxy) bool {
		return o.Link == p.Link && o.Addr == p.Addr
	})
	m.proxies = append(m.proxies, p)
	return nil
}

func (m *machine) DeleteProxy(_ context.Context, p Proxy) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = append(m.writes, "no answer for "+p.String())
	m.proxies = slices.DeleteFunc(m.proxies, func(o Proxy) bool {
		return o.Link == p.Link && o.Addr == p.Addr
	})
	return nil
}

func (m *machine) Watch(ctx context.Context, happened func(Event)) error {
	m.mu.Lock()
	m.happened = happened
	m.mu.Unlock()
	happened(Event{Kind: EventsLost})
	<-ctx.Done()
	return nil
}

// tell sends an event to the watcher, as a socket would; m.mu is held.
func (m *machine) tell(e Event) {
	if m.happened != nil {
		go m.happened(e)
	}
}

// byHand changes the machine as another program would.
func (m *machine) byHand(change func(m *machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// log returns the writes since its last call.
func (m *machine) log() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.writes
	m.writes = nil
	return log
}

func (m *machine) looks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed
}

// String prints the agent's own routes.
func (m *machine) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for _, e := range slices.SortedFunc(slices.Values(m.table), compareEntries) {
		if e.Ours() {
			lines = append(lines, e.String())
		}
	}
	return strings.Join(lines, "\n")
}

// edgeBook is a component that records the views it gets.
type edgeBook struct {
	name  string
	mu    sync.Mutex
	asked []string
	err   error
}

func (e *edgeBook) Name() string { return e.name }

func (e *edgeBook) Apply(_ context.Context, v View, look bool) (Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked := fmt.Sprintf("pods %v of %v mtu %d look %t", v.PodCIDRs, v.ClusterPods, v.MTU, look)
	if len(v.Ingress) > 0 {
		asked += fmt.Sprintf(" open to %v", v.Ingress)
	}
	e.asked = append(e.asked, asked)
	return Report{}, e.err
}

func (e *edgeBook) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

func (e *edgeBook) log() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// fixture is an agent on one machine of a cluster, within a bubble.
type fixture struct {
	t       *testing.T
	client  *fake.Clientset
	machine *machine
	before  *edgeBook
	after   *edgeBook
	events  *record.FakeRecorder
	agent   *Agent
	stop    func()
	device  *device
}

// withFixture runs a test with an agent at rest.
func withFixture(t *testing.T, modes routes.Modes, nodes []*corev1.Node, test func(*fixture)) {
	s := segment()
	s.Modes, s.Gateway = modes, addr("10.0.0.254")
	withMachine(t, s, nodes, test)
}

func withMachine(t *testing.T, s Situation, nodes []*corev1.Node, test func(*fixture)) {
	testMachine(t, s, nil, nodes, test)
}

func testMachine(t *testing.T, s Situation, d *device, nodes []*corev1.Node, test func(*fixture)) {
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{
			t: t, device: d, client: fake.NewClientset(), events: record.NewFakeRecorder(100),
			machine: &machine{
				links: s.Links, table: s.Table, neighbors: map[netip.Addr]bool{}, proxies: s.Proxies,
			},
			before: &edgeBook{name: "before"}, after: &edgeBook{name: "after"},
		}
		for _, n := range nodes {
			w.put(n)
		}
		w.startWith(s.Settings)
		test(w)
		w.stop()
	})
}

// start starts an agent; an earlier one must have been stopped.
func (w *fixture) start(modes routes.Modes) {
	w.t.Helper()
	w.startWith(Settings{Self: "self", Modes: modes, Pools: segment().Pools, Gateway: addr("10.0.0.254")})
}

func (w *fixture) startWith(settings Settings) {
	w.t.Helper()
	var devices []Tunnels
	for d := w.device; d != nil; d = d.earlier {
		devices = append(devices, d)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0,
		informers.WithTransform(kube.Light(corev1.NodeReady, corev1.NodeNetworkUnavailable,
			PeersReachable)))
	a, err := New(Config{
		Client: w.client, Nodes: directorytest.Nodes{Self: "self", Informer: factory.Core().V1().Nodes().Informer()}, Kernel: w.machine, Recorder: w.events, Devices: devices,
		Registry: metrics.NewKubeRegistry(),
		Settings: settings,
		Before:   []Edge{w.before}, After: []Edge{w.after}, Period: time.Minute,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.agent = a
	factory.StartWithContext(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if err := a.Run(ctx); err != nil {
			w.t.Errorf("the agent ended: %v", err)
		}
	})
	w.stop = func() {
		cancel()
		done.Wait()
		factory.Shutdown()
		w.machine.byHand(func(m *machine) { m.happened = nil })
	}
	time.Sleep(time.Second) // the informer polls its cache every tenth of a second
	synctest.Wait()
}

// kubeNode returns a Node; the arguments are those of aNode.
func kubeNode(name string, has ...string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Unix(1000, 0)},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	read := aNode(name, has...)
	for _, p := range read.PodCIDRs {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, p.String())
	}
	for _, a := range read.InternalIPs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: a.String(),
		})
	}
	return n
}

func self() *corev1.Node {
	return kubeNode("self", "10.0.0.1", "fd00::1", "10.244.1.0/24", "fd01:1::/64")
}

func (w *fixture) put(n *corev1.Node) {
	w.t.Helper()
	nodes := w.client.CoreV1().Nodes()
	_, err := nodes.Update(w.t.Context(), n, metav1.UpdateOptions{})
	if err != nil {
		_, err = nodes.Create(w.t.Context(), n, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) remove(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().Nodes().Delete(w.t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// rest waits until all goroutines are idle, without a period passing.
func (w *fixture) rest() { synctest.Wait() }

func (w *fixture) condition(kind corev1.NodeConditionType) corev1.NodeCondition {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), "self", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if c := kube.Condition(node, kind); c != nil {
		return *c
	}
	return corev1.NodeCondition{}
}

func (w *fixture) routes(want ...string) {
	w.t.Helper()
	own := []string{"10.244.1.0/24 unreachable", "fd01:1::/64 unreachable"}
	all := append(own, want...)
	slices.Sort(all)
	got := strings.Split(w.machine.String(), "\n")
	slices.Sort(got)
	if !slices.Equal(got, all) {
		w.t.Errorf("routes are %q, want %q", got, all)
	}
}
