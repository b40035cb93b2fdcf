package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
)

// ledgerText returns a ledger from a short form. "192.0.2.1 a 3" is an address, its holder and
// epoch; nodes joined by a comma hold it together, and a fourth word, "held", means that a node has
// held it.
func ledgerText(holdings ...string) string {
	type entry map[string]any
	var entries []entry
	var groups [][]string
	for _, text := range holdings {
		words := strings.Fields(text)
		epoch, _ := strconv.Atoi(words[2])
		e := entry{"address": words[0], "services": []entry{{"uid": "u" + words[0], "namespace": "default", "name": "s"}}}
		if nodes := strings.Split(words[1], ","); len(nodes) > 1 {
			e["group"], groups = len(groups), append(groups, nodes)
		} else {
			e["node"], e["epoch"] = words[1], epoch
		}
		if len(words) > 3 {
			e[words[3]] = true
		}
		entries = append(entries, e)
	}
	text, _ := json.Marshal(map[string]any{"version": 1, "groups": groups, "addresses": entries})
	return string(text)
}

var errDown = errors.New("no route to host")

type fakeAPI struct {
	mu      sync.Mutex
	version int
	stored  *corev1.ConfigMap
	down    bool // requests fail
	deaf    bool // requests get no response
	closed  bool // only ConfigMaps can't be read
	watches []*watch.RaceFreeFakeWatcher
	lists   int

	nodes   coreinformers.NodeInformer
	patches []string
	refused int // the number of patches that fail
}

func (f *fakeAPI) put(uid, ledger string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	f.stored = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: addresses.LedgerName, Namespace: LedgerNamespace, UID: types.UID(uid),
			ResourceVersion: strconv.Itoa(f.version),
		},
		Data: map[string]string{addresses.LedgerKey: ledger},
	}
	for _, w := range f.watches {
		w.Modify(f.stored.DeepCopy())
	}
}

func (f *fakeAPI) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	for _, w := range f.watches {
		w.Delete(f.stored)
	}
	f.stored = nil
}

func (f *fakeAPI) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watches {
		w.Stop()
	}
	f.watches = nil
}

func (f *fakeAPI) set(down, deaf bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.deaf = down, deaf
}

func (f *fakeAPI) result(ctx context.Context) error {
	f.mu.Lock()
	down, deaf := f.down, f.deaf
	f.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	if down {
		return errDown
	}
	return nil
}

func (f *fakeAPI) List(ctx context.Context, _ metav1.ListOptions) (*corev1.ConfigMapList, error) {
	if err := f.result(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, apierrors.NewForbidden(corev1.Resource("configmaps"), addresses.LedgerName, errDown)
	}
	f.lists++
	all := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(f.version)}}
	if f.stored != nil {
		all.Items = append(all.Items, *f.stored.DeepCopy())
	}
	return all, nil
}

func (f *fakeAPI) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := f.result(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := watch.NewRaceFreeFake()
	if f.stored != nil && o.ResourceVersion != strconv.Itoa(f.version) {
		w.Modify(f.stored.DeepCopy())
	}
	f.watches = append(f.watches, w)
	return w, nil
}

func (f *fakeAPI) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions,
	subresources ...string,
) (*corev1.Node, error) {
	if err := f.result(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused > 0 {
		f.refused--
		return nil, apierrors.NewInternalError(errDown)
	}
	found, there, _ := f.nodes.Informer().GetStore().GetByKey(name)
	var sent struct{ Metadata metav1.ObjectMeta }
	if !there || kind != types.MergePatchType || !slices.Equal(subresources, []string{"status"}) || json.Unmarshal(data, &sent) != nil {
		return nil, apierrors.NewBadRequest("another patch than an agent's")
	}
	node := found.(*corev1.Node).DeepCopy()
	if node.UID != sent.Metadata.UID {
		return nil, apierrors.NewConflict(corev1.Resource("nodes"), name, errDown)
	}
	f.version++
	node.ResourceVersion = strconv.Itoa(f.version)
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	maps.Copy(node.Annotations, sent.Metadata.Annotations)
	f.patches = append(f.patches, sent.Metadata.Annotations[addresses.ReportAnnotation])
	return node, f.nodes.Informer().GetStore().Update(node)
}

// notified returns the reports so far.
func (f *fakeAPI) notified() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.patches)
}

// fakeMover holds all given addresses, except refused ones.
type fakeMover struct {
	mu      sync.Mutex
	want    addresses.Assignment
	sets    []string // the desired states, each once
	refused map[netip.Addr]addresses.ProblemReason
	changed func()
}

// refuse makes the mover refuse an address.
func (m *fakeMover) refuse(address string, why addresses.ProblemReason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[netip.MustParseAddr(address)] = why
}

func (m *fakeMover) Run(ctx context.Context, changed func()) error {
	m.mu.Lock()
	m.changed = changed
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (m *fakeMover) Set(w addresses.Assignment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.want = w
	var hold []string
	for _, h := range w.Hold {
		one := fmt.Sprintf("{%s %d %t}", h.Address, h.Epoch, h.Resumed)
		if h.Held {
			one += " held"
		}
		hold = append(hold, one)
	}
	line := fmt.Sprintf("%s hold %v elsewhere %v doubt %v", w.Cluster, hold, w.Elsewhere, w.Doubt)
	if len(m.sets) == 0 || m.sets[len(m.sets)-1] != line {
		m.sets = append(m.sets, line)
	}
}

func (m *fakeMover) Status() (s addresses.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.want.Hold {
		if why := m.refused[h.Address]; why != "" {
			s.Refused = append(s.Refused, addresses.Problem{Address: h.Address, Reason: why, By: "02:00:00:00:00:09"})
		} else {
			s.Held = append(s.Held, addresses.Hold{Address: h.Address, Epoch: h.Epoch})
		}
	}
	return s
}

func (m *fakeMover) log() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sets)
}

// fakeNeighbors is the kernel's neighbor table.
type fakeNeighbors struct {
	mu        sync.Mutex
	known     map[netip.Addr]net.HardwareAddr
	solicited []netip.Addr
	looks     int
	// successes are added a moment after a solicitation.
	successes map[netip.Addr]net.HardwareAddr
}

func (n *fakeNeighbors) Hardware(context.Context) (map[netip.Addr]net.HardwareAddr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	return maps.Clone(n.known), nil
}

func (n *fakeNeighbors) Solicit(_ context.Context, all []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.solicited = append(n.solicited, all...)
	for _, a := range all {
		if hardware, there := n.successes[a]; there {
			time.AfterFunc(time.Millisecond, func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.known[a] = hardware
			})
		}
	}
	return nil
}

// proxies respond to health checks, except the silent ones.
type proxies struct {
	mu     sync.Mutex
	silent map[string]bool
	refuse map[string]bool
	ready  map[string]time.Time // not before
	checks map[string]int
}

func (p *proxies) check(_ context.Context, at netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks[at.String()]++
	switch {
	case p.silent[at.String()]:
		return context.DeadlineExceeded
	case p.refuse[at.String()]:
		return ErrRefused
	case time.Now().Before(p.ready[at.String()]):
		return ErrUnready
	}
	return nil
}

// lag makes a port at all of this machine's addresses report for a while that it does not serve.
func (p *proxies) lag(at string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := strings.Replace(at, "127.0.0.1", "10.0.0.1", 1)
	p.ready = map[string]time.Time{at: time.Now().Add(d), own: time.Now().Add(d)}
}

func (p *proxies) hush(at string, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent[at] = silent
}

func (p *proxies) refuses(at string, refuses bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse[at] = refuses
}

// machine is a machine with an agent, Node "a" of a cluster with "b", "c" and "d".
type machine struct {
	t       *testing.T
	api     *fakeAPI
	mover   *fakeMover
	kernel  *fakeNeighbors
	proxies *proxies
	routed  bool // a provider routes its addresses
	state   string
	agent   *Agent
	stop    func()
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	// The client gets no requests.
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "nobody.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	nodes := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes()
	m := &machine{
		t: t, api: &fakeAPI{nodes: nodes, version: 100}, kernel: &fakeNeighbors{},
		proxies: &proxies{silent: map[string]bool{}, refuse: map[string]bool{}, checks: map[string]int{}},
		state:   filepath.Join(t.TempDir(), StateFile),
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		m.node(name, fmt.Sprintf("10.0.0.%d", i+1), true)
	}
	return m
}

func (m *machine) node(name, ip string, ready bool) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	if err := m.api.nodes.Informer().GetStore().Add(n); err != nil {
		m.t.Fatal(err)
	}
}

// start starts an agent; only in a bubble.
func (m *machine) start(before ...func(*fakeMover)) {
	m.t.Helper()
	m.mover = &fakeMover{refused: map[netip.Addr]addresses.ProblemReason{}}
	for _, b := range before {
		b(m.mover)
	}
	var err error
	m.agent, err = New(Config{
		Self: "a", Nodes: directorytest.Nodes{Self: "a", Informer: m.api.nodes.Informer()}, ConfigMaps: m.api, Patcher: m.api,
		Movers: []Mover{{
			Name: "layer2", Pools: []addresses.Pool{pool(m.t, "192.0.2.0/24", "2001:db8::/120")}, Announcer: m.mover, Routed: m.routed,
		}},
		Friends: NewFriends(m.kernel), Held: &Set{}, Check: m.proxies.check, StatePath: m.state,
		Registry: metrics.NewKubeRegistry(),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.agent.Run(ctx)
	}()
	m.stop = func() {
		cancel()
		<-done
	}
	synctest.Wait()
}

func (m *machine) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func pool(t *testing.T, ranges ...string) addresses.Pool {
	t.Helper()
	p := addresses.Pool{Name: "segment"}
	for _, text := range ranges {
		r, err := addresses.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func (m *machine) expect(want ...string) {
	m.t.Helper()
	if got := m.mover.log(); !slices.Equal(got, want) {
		m.t.Errorf("the mover was told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// report returns the last written report.
func (m *machine) report() addresses.Report {
	m.t.Helper()
	notified := m.api.notified()
	if len(notified) == 0 {
		m.t.Fatal("nothing was reported")
	}
	r, err := addresses.ParseReport(notified[len(notified)-1])
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}
