package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/promauto"
)

// Config has the dependencies and settings of an Agent.
type Config struct {
	// Self is the name of this machine's Node.
	Self string
	// Nodes must be started by the caller.
	Nodes      Nodes
	ConfigMaps ConfigMaps
	Patcher    NodePatcher
	// Movers are in order of precedence: the first with a pool for an address holds it.
	Movers []Mover
	// The agent updates Friends and Held. Held, for the packet filter, are the addresses that packets
	// may arrive for: those that this node holds or is to hold, and those of other nodes that a
	// provider may route here.
	Friends *Friends
	Held    *Set
	Check   Check
	// StatePath is the file with the addresses to restore while the API server is unreachable.
	StatePath string
	Registry  promauto.Registry
}

// Agent holds addresses on one machine. Run must be called only once.
type Agent struct {
	Config
	reporter *reporter
	watcher  *watcher
	metrics  *agentMetrics
	kick     chan struct{}
	own      Set // addresses of this machine's Node

	mu    sync.Mutex
	known Knowledge
	doubt bool
	read  bool // in this run the ledger was read, even if it does not exist
	// ledgerRead: known.Ledger is of the API server, not of an earlier run.
	ledgerRead bool
	beat       time.Time
	orphans    []netip.Addr // see Ready

	// The fields below belong to the goroutine of Run.
	resumed map[netip.Addr]uint64
	holding []netip.Addr // held, or to be held, by the last pass
	saved   string
	logged  map[netip.Addr]string
}

// New returns an Agent that is subscribed to changes of Nodes. Run starts it.
func New(cfg Config) (*Agent, error) {
	a := &Agent{
		Config: cfg, kick: make(chan struct{}, 1), doubt: true,
		resumed: map[netip.Addr]uint64{}, logged: map[netip.Addr]string{},
	}
	var err error
	if a.metrics, err = newMetrics(cfg.Registry); err != nil {
		return nil, err
	}
	a.reporter = newReporter(cfg)
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

// look triggers a reconcile.
func (a *Agent) look() { notify(a.kick) }

// notify wakes the receiver of a channel with room for one value.
func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Run runs until ctx is done. It withdraws no address.
func (a *Agent) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("addresses"))
	known, err := Load(a.StatePath, a.Self)
	if err != nil { // the node then holds no address until the ledger is read
		klog.FromContext(ctx).Error(err, "The addresses that an earlier run held are unknown")
	}
	a.known = known
	for _, h := range known.Held {
		a.resumed[h.Address] = h.Epoch
	}
	a.metrics.doubt.Set(1)
	a.beats(time.Now())
	a.pass(ctx) // restores the addresses before the first request to the API server

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
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-a.kick:
			a.pass(ctx)
		case now := <-beats.C:
			a.beats(now)
		}
	}
	a.watcher.stop()
	workers.Wait()
}

// runAgain is the pause before a mover that returned is run again. All else must work without it.
const runAgain = 5 * time.Second

func (a *Agent) move(ctx context.Context, m Mover) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.Run(ctx, a.look); ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Addresses can't be held; trying again", "mover", m.Name)
		}
	}, runAgain)
}

func (a *Agent) readLedger(l addresses.Ledger, uid string) {
	a.mu.Lock()
	for _, e := range l.Entries() {
		if !a.ledgerRead && len(e.Shares) > 0 && moverOf(a.Movers, e.Address) < 0 {
			a.orphans = append(a.orphans, e.Address)
		}
	}
	a.known.Ledger, a.known.Cluster, a.ledgerRead = l, uid, true
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
		klog.FromContext(ctx).Info("The ledger of addresses can't be read; this node continues with the state it "+
			"read last, and yields an address to any other machine that has it", "why", why)
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

// pass reconciles movers, health checks and the report.
func (a *Agent) pass(ctx context.Context) {
	nodes, _ := a.Nodes.All() // empty before they are read
	a.mu.Lock()
	var members []netip.Addr
	for _, n := range nodes {
		if n.Name != a.Self {
			members = append(members, n.InternalIPs...)
		}
	}
	if own := a.Nodes.Own(); own != nil && len(nodes) > 0 {
		before := a.known.Node
		a.known.Node = NodeOf(own)
		if before != nil && before.UID != a.known.Node.UID && !a.ledgerRead {
			a.forget(ctx)
		}
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
		m.Set(d.wants[i])
		for _, h := range d.wants[i].Hold {
			holding = append(holding, h.Address)
		}
		now := m.Status()
		report.Held = append(report.Held, now.Held...)
		report.Refused = append(report.Refused, now.Refused...)
		report.Routers = append(report.Routers, now.Routers...)
		if now.Segments != nil {
			report.Segments = now.Segments
			report.Refused = append(report.Refused, unheld(known.Ledger, d.wants[i].Elsewhere, report)...)
		}
		a.metrics.held.WithLabelValues(m.Name).Set(float64(len(now.Held)))
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
		a.own.Put(known.Node.InternalIPs, addresses.Ledger{})
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
	if !read { // an empty report would replace that of the earlier run
		return
	}
	if err := a.reporter.publish(report); err != nil {
		klog.FromContext(ctx).Error(err, "This node's report about addresses is not written")
	}
}

// forget drops the state of an earlier run as another Node, perhaps with another ledger.
func (a *Agent) forget(ctx context.Context) {
	klog.FromContext(ctx).Info("The Node was recreated after its held addresses were recorded; the record is ignored")
	a.known.Ledger, a.known.Cluster, a.known.Held = addresses.Ledger{}, "", nil
	clear(a.resumed)
}

// heldBefore reports whether this node held, or was to hold, an address before this pass.
func (a *Agent) heldBefore(address netip.Addr) bool {
	_, resumed := a.resumed[address]
	return resumed || slices.Contains(a.holding, address)
}

func (a *Agent) save(ctx context.Context, known Knowledge) {
	if known.Cluster == "" {
		return
	}
	text, err := json.Marshal(known)
	if err == nil && string(text) == a.saved {
		return
	}
	if err == nil {
		err = replace(a.StatePath, text)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err,
			"This node's held addresses are not recorded; restarted without "+
				"the API server, it would hold nothing", "file", a.StatePath)
		return
	}
	a.saved = string(text)
}

func (a *Agent) observe(ctx context.Context, r addresses.Report) {
	down := 0
	for _, router := range r.Routers {
		if !router.Established {
			down++
		}
	}
	a.metrics.routersDown.Set(float64(down))
	now := make(map[netip.Addr]string, len(r.Refused))
	for _, p := range r.Refused {
		now[p.Address] = p.Text
		if p.Text != "" && a.logged[p.Address] != p.Text {
			klog.FromContext(ctx).Info("An address is not held, or another machine claims it",
				"address", p.Address, "reason", p.Reason, "by", p.By, "why", p.Text)
		}
	}
	a.logged = now
}
