package schedule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// The tolerances that the design allows. Any other deviation is a violation at once.
const (
	// noticed is how long a route may be missing while the Node's condition is reachable: the next
	// complete list shows it, and lists may fail for a while.
	noticed = 2*period + 40*time.Second
	// movedNoticed is the same after a server got another address: only the server list shows that,
	// and it is up to five minutes old.
	movedNoticed = 6*time.Minute + noticed
	// strangerNoticed is how long a foreign route may exist before such a prefix is no longer
	// assigned.
	strangerNoticed = 2*period + 40*time.Second
	// deadline is the longest time that a deletion may be in flight if its sender can cancel it.
	deadline = leaseTime
	// listAge is the maximum age of the lists on which a deletion is based: the route of a Node
	// that got its podCIDRs later, and whose condition isn't reachable yet, is recreated.
	listAge = leaseTime / 2
)

// invariants checks every change of a Node and of the route table for violations: a prefix with two
// Nodes; one that is assigned while a route sends it elsewhere or before its quarantine has ended;
// a Node with a reachable condition but without its route; a living Node's route deleted by a
// manager; a route to another Node's server.
type invariants struct {
	mu     sync.Mutex
	log    []string
	broken []string

	nodes    map[string]*member // the existing Nodes, by name
	left     map[netip.Prefix]former
	routes   map[netip.Prefix]netip.Addr
	since    map[netip.Prefix]time.Time // when the route was created
	servers  map[int64]netip.Addr       // addresses in the network
	moved    map[int64]time.Time        // time of the last change of a server's address
	ended    map[string]time.Time       // time of routes' deletions
	deletes  map[string]sending         // accepted deletions by managers that have no effect yet
	unstored bool                       // the last request for the record of routes failed
	unproven map[string]bool            // routes that were created then
	excused  time.Time                  // until then a route may be missing: outage, no leader
	detected map[string]int             // counters of events, so that a schedule without them shows
}

// member is an existing Node.
type member struct {
	name     string
	uid      types.UID
	server   int64
	born     time.Time
	podCIDR  netip.Prefix // the IPv4 one; zero: none
	all      []netip.Prefix
	assigned time.Time // when it got them
	says     corev1.ConditionStatus
	stands   bool      // its route exists
	stood    time.Time // when it last existed in the Node's life; zero: never
	missing  time.Time // since when the Node is reachable without its route; zero: it isn't
}

// former is a Node that had a prefix.
type former struct {
	name   string
	server int64
	at     time.Time
}

func newInvariants() *invariants {
	return &invariants{
		nodes: map[string]*member{}, left: map[netip.Prefix]former{},
		routes: map[netip.Prefix]netip.Addr{},
		since:  map[netip.Prefix]time.Time{}, servers: map[int64]netip.Addr{},
		moved: map[int64]time.Time{},
		ended: map[string]time.Time{}, deletes: map[string]sending{}, unproven: map[string]bool{},
		detected: map[string]int{},
	}
}

func (v *invariants) note(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.write(format, args...)
}

func (v *invariants) write(format string, args ...any) {
	v.log = append(v.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// find records a violation. The caller holds the lock.
func (v *invariants) find(format string, args ...any) {
	v.broken = append(v.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	v.write("!! "+format, args...)
}

func (v *invariants) verdicts() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.broken)
}

// excuse records that nothing can be noticed until a time.
func (v *invariants) excuse(until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if until.After(v.excused) {
		v.excused = until
	}
}

// nodeChanged is called with every change of a Node.
func (v *invariants) nodeChanged(before, after *corev1.Node, managed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if before == nil {
		v.write("Node %s/%s is there", after.Name, after.UID)
		v.nodes[after.Name] = &member{
			name: after.Name, uid: after.UID, born: time.Now(), server: serverOf(after),
		}
		return
	}
	m := v.nodes[before.Name]
	if after == nil {
		v.write("Node %s/%s is gone, had %v", m.name, m.uid, m.all)
		for _, p := range m.all {
			v.left[p] = former{m.name, m.server, time.Now()}
		}
		delete(v.nodes, before.Name)
		return
	}
	if id := serverOf(after); id != 0 {
		m.server = id
	}
	if prefixes, _ := kube.PodCIDRs(after); len(m.all) == 0 && len(prefixes) > 0 {
		m.all, m.assigned = prefixes, time.Now()
		v.write("Node %s/%s gets %v", m.name, m.uid, prefixes)
		v.handedOut(m)
	}
	if c := kube.Condition(after, corev1.NodeNetworkUnavailable); c != nil && c.Status != m.says {
		v.write("Node %s/%s NetworkUnavailable %s %s", m.name, m.uid, c.Status, c.Reason)
		m.says = c.Status
		v.checkCondition(m)
	}
	v.settle()
}

func serverOf(node *corev1.Node) int64 {
	id, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return 0
	}
	return id
}

// handedOut checks the podCIDRs that a Node just got.
func (v *invariants) handedOut(m *member) {
	v.detected["prefixes handed out"]++
	for _, p := range m.all {
		if p.Addr().Is4() {
			m.podCIDR = p
		}
		for _, other := range v.nodes {
			if other != m && slices.ContainsFunc(other.all, p.Overlaps) {
				v.find("prefix twice: %s and %s have %s", m.name, other.name, p)
			}
		}
		own := v.servers[m.server]
		for dst, via := range v.routes {
			if !dst.Overlaps(p) || m.server != 0 && via == own {
				continue
			}
			was, had := v.left[dst]
			switch {
			case had && was.name == m.name && was.server == m.server && m.server != 0:
				// The same machine with another address: the route is replaced.
			case had && was.at.After(v.since[dst].Add(-deadline)):
				v.find("quarantine: %s gets %s, to which the route via %s of %s stands, gone since %s", m.name, p, via, was.name, time.Since(was.at))
			case time.Since(v.since[dst]) > strangerNoticed && time.Now().After(v.excused):
				v.find("routed: %s gets %s, to which a stranger's route via %s stands since %s", m.name, p, via, time.Since(v.since[dst]))
			}
		}
		if was, had := v.left[p]; had && time.Since(was.at) < quarantine &&
			(was.name != m.name || was.server != m.server || m.server == 0) {
			v.find("quarantine: %s gets %s, which %s had until %s ago", m.name, p, was.name, time.Since(was.at))
		} else if had && time.Since(was.at) < quarantine {
			v.detected["machines that came back"]++
		}
	}
}

// checkCondition checks a condition that was just written.
func (v *invariants) checkCondition(m *member) {
	address := v.servers[m.server]
	if m.says != corev1.ConditionFalse || !m.podCIDR.IsValid() || !address.IsValid() {
		return
	}
	v.detected["nodes that were said to be reachable"]++
	v.settle()
	// A list that is newer than the Node may have shown a route that was deleted before the Node
	// had its podCIDR.
	if before := v.ended[deletion(m.podCIDR.String(), address.String())]; m.stood.IsZero() &&
		before.After(m.born) {
		m.stood = before
	}
	switch {
	case m.stands, v.movedLately(m):
	case m.stood.IsZero():
		v.find("reachable without a route: %s/%s, born %s ago, is told so, and %s never led to it", m.name, m.uid, time.Since(m.born), m.podCIDR)
	case time.Since(m.stood) > noticed && time.Now().After(v.excused):
		v.find("reachable without a route: %s/%s is told so, and %s does not lead to it since %s", m.name, m.uid, m.podCIDR, time.Since(m.stood))
	}
}

// movedLately reports whether a Node's server got another address that may not be noticed yet.
func (v *invariants) movedLately(m *member) bool {
	at, moved := v.moved[m.server]
	return moved && time.Since(at) < movedNoticed
}

// settle updates for every Node whether its route exists, and starts the timer of those that are
// reachable without it. The caller holds the lock.
func (v *invariants) settle() {
	now := time.Now()
	for _, m := range v.nodes {
		address := v.servers[m.server]
		stands := m.podCIDR.IsValid() && address.IsValid() && v.routes[m.podCIDR] == address
		if stands || m.stands {
			m.stood = now
		}
		m.stands = stands
		if stands || !address.IsValid() || m.says != corev1.ConditionFalse {
			m.missing = time.Time{}
			continue
		}
		if !m.missing.IsZero() {
			continue
		}
		m.missing = now
		v.detected["routes missing under a condition"]++
		allowed := noticed
		if v.movedLately(m) {
			allowed = movedNoticed
		}
		v.expect(m, now, allowed)
	}
}

// expect checks a Node with a missing route again, at the time when it must have been noticed.
func (v *invariants) expect(m *member, since time.Time, after time.Duration) {
	time.AfterFunc(after, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		switch {
		case v.nodes[m.name] != m || m.missing != since:
		case time.Now().Before(v.excused.Add(noticed)):
			v.expect(m, since, time.Until(v.excused.Add(noticed))+time.Second)
		default:
			v.find("reachable without a route: %s/%s says so since %s, and %s does not lead to it", m.name, m.uid, time.Since(since), m.podCIDR)
		}
	})
}

// cloudChanged is called with every change of the network.
func (v *invariants) cloudChanged(now hcloudsim.DataPlane) {
	v.mu.Lock()
	defer v.mu.Unlock()
	routes, servers := map[netip.Prefix]netip.Addr{}, map[int64]netip.Addr{}
	for _, n := range now.Networks {
		for _, r := range n.Routes {
			routes[r.Destination] = r.Gateway
		}
		for _, m := range n.Members {
			servers[m.ID] = m.IP
		}
	}
	for id, address := range servers {
		if before := v.servers[id]; before.IsValid() && before != address {
			v.moved[id] = time.Now()
		}
	}
	for id, address := range v.servers {
		if !servers[id].IsValid() {
			v.moved[id] = time.Now() // if it returns, it has another address
			v.write("server %d at %s leaves the network", id, address)
		}
	}
	before := v.routes
	v.routes, v.servers = routes, servers
	for dst, via := range routes {
		if before[dst] != via {
			v.since[dst] = time.Now()
			v.write("route %s via %s stands", dst, via)
			v.detected["routes made"]++
			if v.unstored {
				v.unproven[deletion(dst.String(), via.String())] = true
			}
		}
	}
	for dst, via := range before {
		if routes[dst] != via {
			v.write("route %s via %s is gone", dst, via)
			v.ended[deletion(dst.String(), via.String())] = time.Now()
			v.deleted(dst, via)
		}
	}
	v.settle()
}

// deleted checks the deletion of a route.
func (v *invariants) deleted(dst netip.Prefix, via netip.Addr) {
	sent, managed := v.deletes[deletion(dst.String(), via.String())]
	delete(v.deletes, deletion(dst.String(), via.String()))
	if !managed {
		return // deletions by hand are allowed
	}
	v.detected["routes deleted"]++
	for _, m := range v.nodes {
		switch {
		case m.podCIDR != dst || v.servers[m.server] != via:
		case m.says != corev1.ConditionFalse && m.assigned.After(sent.at.Add(-listAge)):
			v.detected["deletions that rest on lists from before a Node"]++
		case !m.assigned.After(sent.at):
			v.find("a living Node's route deleted: %s via %s of %s, asked for at %s", dst, via, m.name, sent.at.Format("15:04:05.000"))
		case time.Since(sent.at) > deadline+time.Second && !sent.held:
			v.find("a living Node's route deleted late: %s via %s of %s, asked for %s ago", dst, via, m.name, time.Since(sent.at))
		default:
			v.detected["late deletions"]++
		}
	}
}

// recording is called with whether a request for the record of routes fails.
func (v *invariants) recording(wrong bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unstored = wrong
}

// ownerless checks a route without an owner in the end, and reports whether it may exist: one that
// was created while the record could not be stored, by a leader that ended before it could. Then no
// record shows that it belongs to Underlay.
func (v *invariants) ownerless(dst netip.Prefix, via netip.Addr, record map[string]string) bool {
	recorded := strings.Fields(record[strings.Replace(dst.String(), "/", "_", 1)])
	if v.unproven[deletion(dst.String(), via.String())] && !slices.Contains(recorded, via.String()) {
		v.detected["routes that were never recorded, and are nobody's"]++
		return true
	}
	v.find("in the end the route %s via %s stands for nobody", dst, via)
	return false
}

func deletion(dst, via string) string { return dst + " " + via }

// checkRequest is called with every request of a manager that reached the cloud.
func (v *invariants) checkRequest(sent sending, body []byte, answer *http.Response) {
	if !strings.HasSuffix(sent.path, "/actions/delete_route") || answer.StatusCode >= 300 {
		return
	}
	var route struct {
		Destination netip.Prefix
		Gateway     netip.Addr
	}
	if json.Unmarshal(body, &route) != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	key := deletion(route.Destination.String(), route.Gateway.String())
	v.deletes[key] = sent
	// In a cloud that shows effects at once the route was deleted before the response.
	if at, gone := v.ended[key]; gone && !at.Before(sent.at) &&
		v.routes[route.Destination] != route.Gateway {
		v.deleted(route.Destination, route.Gateway)
	}
}
