package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// Config is all that an Agent needs.
type Config struct {
	// Self is the name of this machine's Node.
	Self string
	// Nodes are started by their owner.
	Nodes      Nodes
	ConfigMaps ConfigMaps
	Patcher    NodePatcher
	// Movers are asked in this order whose an address is.
	Movers []NamedMover
	// Friends, Held and Own are kept up to date for others. Held is what packets may come here for:
	// the addresses that this node holds or is to hold, and those of others that a provider may lead
	// here. Own are the addresses of this machine's Node.
	Friends   *Friends
	Held, Own *Set
	Check     Check
	// StatePath is the file that says what the node holds when the API server can't.
	StatePath string
	Registry  Registry
}

// Agent holds addresses on one machine. Run it once.
type Agent struct {
	Config
	reporter *reporter
	watcher  *watcher
	metrics  *agentMetrics
	kick     chan struct{}

	mu    sync.Mutex
	known Knowledge
	doubt bool
	read  bool // the API server was asked, in this run
	// ledgerRead: what is known of the ledger is from the API server, and not from an earlier run.
	ledgerRead bool
	beat       time.Time
	orphans

	// The rest belongs to the one goroutine that passes.
	resumed map[netip.Addr]uint64
	holding []netip.Addr // what the last pass held, or was to hold
	saved   string
	counted map[string]State
	logged  map[netip.Addr]string
}

// New prepares an agent with what an earlier run of it knew.
func New(cfg Config) (*Agent, error) {
	a := &Agent{
		Config: cfg, kick: make(chan struct{}, 1), doubt: true,
		resumed: map[netip.Addr]uint64{}, counted: map[string]State{}, logged: map[netip.Addr]string{},
	}
	var err error
	if a.metrics, err = newMetrics(cfg.Registry); err != nil {
		return nil, err
	}
	a.reporter = newReporter(cfg, a.metrics)
	a.watcher = newWatcher(cfg.Check, a.look)
	err = cfg.Nodes.Subscribe(func(_, _ *corev1.Node) {
		a.reporter.look()
		a.look()
	}, func(string) { a.look() })
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for addresses: %w", err)
	}
	return a, nil
}

// look makes the agent compare everything again, soon.
func (a *Agent) look() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Run works until the context ends. What is held stays held then: nothing is withdrawn.
func (a *Agent) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("addresses"))
	known, err := Load(a.StatePath, a.Self)
	if err != nil { // it then holds nothing until it has read the ledger
		klog.FromContext(ctx).Error(err, "What an earlier run held is not known")
	}
	a.known = known
	for _, h := range known.Held {
		a.resumed[h.Address] = h.Epoch
	}
	a.metrics.doubt.Set(1)
	a.beats(time.Now())
	a.pass(ctx) // before anybody is asked: what was held goes on

	var workers sync.WaitGroup
	for _, m := range a.Movers {
		workers.Go(func() { a.move(ctx, m) })
	}
	reader := Reader{
		ConfigMaps: a.ConfigMaps, Read: a.readLedger,
		Doubt: func(doubt bool, why error) { a.doubts(ctx, doubt, why) },
	}
	workers.Go(func() { reader.Run(ctx) })
	workers.Go(func() { a.Friends.Run(ctx) })
	workers.Go(func() { a.reporter.run(ctx) })
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-a.kick:
			a.pass(ctx)
		case now := <-beats.C:
			a.beats(now)
		}
	}
	a.watcher.stop()
	workers.Wait()
}

// runAgain is the pause before a mover that ended is run again. Nothing else of the node may depend
// on that it works.
const runAgain = 5 * time.Second

func (a *Agent) move(ctx context.Context, m NamedMover) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.Mover.Run(ctx, a.look); ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Addresses can't be held; trying again", "mover", m.Name)
		}
	}, runAgain)
}

func (a *Agent) readLedger(l addresses.Ledger, uid string) {
	a.mu.Lock()
	a.known.Ledger, a.known.Cluster, a.ledgerRead = l, uid, true
	a.learn(l, a.Movers)
	a.mu.Unlock()
	a.look()
}

func (a *Agent) doubts(ctx context.Context, doubt bool, why error) {
	a.mu.Lock()
	a.doubt = doubt
	a.read = a.read || !doubt
	a.mu.Unlock()
	a.metrics.doubt.Set(0)
	if doubt {
		a.metrics.doubt.Set(1)
		klog.FromContext(ctx).Info("The ledger of addresses can't be read; this node goes on with what it "+
			"read last, and yields to whoever shows up with an address", "why", why)
	} else {
		klog.FromContext(ctx).Info("The ledger of addresses is read")
	}
	a.look()
}

func (a *Agent) beats(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beat = now
}

// pass brings movers and watches in step with what is known now, and says what they have come to.
func (a *Agent) pass(ctx context.Context) {
	nodes, _ := a.Nodes.All() // none before they are read
	own := a.Nodes.Own()
	a.mu.Lock()
	var members []netip.Addr
	for _, n := range nodes {
		if n.Name != a.Self {
			members = append(members, n.InternalIPs...)
		}
	}
	if own != nil && len(nodes) > 0 {
		if was := a.known.Node; was != nil && was.UID != own.UID && !a.ledgerRead {
			a.forget(ctx)
		}
		a.known.Node = own
	}
	known, doubt, read := a.known, a.doubt, a.read
	a.mu.Unlock()

	if len(nodes) > 0 {
		a.Friends.set(members)
	}
	d := situation{
		Knowledge: known, self: a.Self, movers: a.Movers, nodes: nodes, resumed: a.resumed, doubt: doubt,
		before: a.heldBefore, unready: a.watcher.unready,
	}.decide()
	a.watcher.set(ctx, watched(known.Ledger, a.Self, nodes, d.waiting))
	report := addresses.Report{Refused: d.refused}
	var holding []netip.Addr
	for i, m := range a.Movers {
		m.Mover.Set(d.wants[i])
		for _, h := range d.wants[i].Hold {
			holding = append(holding, h.Address)
		}
		now := m.Mover.State()
		report.Held = append(report.Held, now.Held...)
		report.Refused = append(report.Refused, now.Refused...)
		report.Routers = append(report.Routers, now.Routers...)
		if now.Segments != nil {
			report.Segments = append([]netip.Prefix{}, now.Segments...)
			report.Refused = append(report.Refused, unheld(known.Ledger, d.wants[i].Elsewhere, report)...)
		}
		a.count(m.Name, now)
	}
	for _, h := range report.Held {
		holding = append(holding, h.Address)
	}
	a.holding = holding
	for _, e := range d.waiting {
		holding = append(holding, e.Address)
	}
	a.Held.Put(slices.Concat(holding, d.passing), known.Ledger)
	if known.Node != nil {
		a.Own.Put(kube.InternalIPs(known.Node), addresses.Ledger{})
	}
	for _, e := range a.watcher.silent() {
		switch {
		case e.Node != a.Self:
			report.Silent = append(report.Silent, e)
		case !ofService(e.Port):
			report.Unfit = unfit()
		}
	}
	a.observe(ctx, report)
	known.Held = going(d.wants, report)
	a.save(ctx, known)
	if !read { // a node that knows nothing yet has nothing to say
		return
	}
	if err := a.reporter.tell(report); err != nil {
		klog.FromContext(ctx).Error(err, "What this node says about addresses is not written")
	}
}

// forget drops what an earlier run knew: it ran as another Node, of another cluster perhaps, whose
// ledger is not the one of this Node.
func (a *Agent) forget(ctx context.Context) {
	klog.FromContext(ctx).Info("The Node was made anew since what it held was written down; this is not followed")
	a.known.Ledger, a.known.Cluster, a.known.Held = addresses.Ledger{}, "", nil
	clear(a.resumed)
}

// heldBefore reports whether an address was to be held before this pass, or by an earlier run.
func (a *Agent) heldBefore(address netip.Addr) bool {
	_, resumed := a.resumed[address]
	return resumed || slices.Contains(a.holding, address)
}

// save writes down what the next run is to go on with.
func (a *Agent) save(ctx context.Context, known Knowledge) {
	if known.Cluster == "" {
		return
	}
	text, err := known.text(a.Self)
	if err == nil && string(text) == a.saved {
		return
	}
	if err == nil {
		err = replace(a.StatePath, text)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "What this node holds is not written down; started again without "+
			"the API server, it would hold nothing", "file", a.StatePath)
		return
	}
	a.saved = string(text)
}

// observe shows the report in metrics, and in the log what is new of it.
func (a *Agent) observe(ctx context.Context, r addresses.Report) {
	a.metrics.silent.Set(float64(len(r.Silent)))
	a.metrics.refused.Reset()
	down := 0
	for _, router := range r.Routers {
		if !router.Established {
			down++
		}
	}
	a.metrics.routersDown.Set(float64(down))
	now := make(map[netip.Addr]string, len(r.Refused))
	for _, p := range r.Refused {
		a.metrics.refused.WithLabelValues(string(p.Reason)).Inc()
		now[p.Address] = p.Text
		if p.Text != "" && a.logged[p.Address] != p.Text {
			klog.FromContext(ctx).Info("An address is not held, or somebody else claims it",
				"address", p.Address, "reason", p.Reason, "by", p.By, "why", p.Text)
		}
	}
	a.logged = now
}

// count turns what a mover has counted into metrics.
func (a *Agent) count(mover string, now State) {
	was := a.counted[mover]
	grown := func(from, to uint64) float64 { return float64(to - min(from, to)) }
	a.metrics.held.WithLabelValues(mover).Set(float64(len(now.Held)))
	a.metrics.announcements.WithLabelValues(mover).Add(grown(was.Announced, now.Announced))
	a.metrics.conflicts.WithLabelValues(mover).Add(grown(was.Conflicts, now.Conflicts))
	a.counted[mover] = now
}
