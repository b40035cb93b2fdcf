package survey

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

// LoadBalancersParts are the parts of LoadBalancersOf, which can omit the cloud's parts.
const LoadBalancersParts = PartConfig | PartNodes | PartServices | PartEndpointSlices |
	PartNetwork | PartServers | PartLoadBalancers

// LoadBalancersOf shows the Services that the CCM serves, with their load balancers and the
// pending operations, and load balancers of this cluster without a Service.
func LoadBalancersOf(s *Snapshot) (table.Page, error) {
	if err := s.Require(PartConfig | PartServices); err != nil {
		return table.Page{}, err
	}
	switch {
	case s.Config.Provider == config.Metal:
		return table.Page{
			Notes: []string{"the provider is metal: there are no load balancers of a cloud"},
		}, nil
	case !s.Config.LoadBalancers.Enabled:
		return table.Page{
			Notes: []string{"load balancers are switched off: loadBalancers.enabled is false"},
		}, nil
	}
	out := table.Page{NotSeen: s.NotSeen()}
	t := balancerTable{
		node: s.nodesOfTargets(),
		Table: table.New("services", "", "SERVICE", "LOAD BALANCER",
			"ADDRESSES", "+TYPE", "+LOCATION", "LISTENER", "+CHECK", "TARGET", "HEALTH"),
	}
	plan := table.New("plan", "Left to do", "SERVICE", "OPERATION")
	if s.Saw(LoadBalancersParts) {
		s.addBalancings(&out, &t, &plan)
	} else {
		for _, svc := range s.Services {
			if lbcontroller.Ours(svc, s.Config.LoadBalancers.Classless) {
				t.add(svc, nil, "")
			}
		}
	}
	out.Tables = []table.Table{t.Table, plan}
	switch {
	case len(t.Rows) == 0:
		out.Lines = []string{"No Service requests a load balancer of Underlay."}
	case len(plan.Rows) == 0 && len(out.Notes) == 0 && len(out.NotSeen) == 0:
		out.Lines = []string{"Nothing is left to do."}
	}
	return out, nil
}

func (s *Snapshot) addBalancings(out *table.Page, t *balancerTable, plan *table.Table) {
	if _, err := s.Absences(); err != nil {
		out.NotSeen = append(out.NotSeen, serversUnknown+err.Error())
	}
	for _, b := range s.Balancings() {
		t.add(b.Service, b.LoadBalancer, b.Shared)
		name := NameOf(b.Service).String()
		for _, op := range b.Ops {
			plan.Add(name, table.Warn.Cell(op.String())).About = "Service/" + name
		}
		if b.Conflict != nil {
			out.Notes = append(out.Notes, name+": "+b.Conflict.Error())
		}
		for _, note := range b.Notes {
			out.Notes = append(out.Notes, name+": "+note.String())
		}
	}
	for _, b := range s.Orphans() {
		t.add(nil, b, "")
		out.Notes = append(out.Notes, fmt.Sprintf("load balancer %s (%d): no Service has it: delete it in the cloud if nothing else uses it, or remove its underlay.dev labels to keep it", b.Name, b.ID))
	}
}

// balancerTable has a row for each target. node returns the Node of a target.
type balancerTable struct {
	table.Table
	node func(lb.Target) string
}

// add adds a Service, which may be nil, and its load balancer, which may be nil. Cells that
// would repeat the row above have no text.
func (t *balancerTable) add(svc *corev1.Service, b *lb.State, shared string) {
	service, about := table.Warn.Cell("gone"), ""
	name, addresses := table.None, []string{}
	var kind, location string
	var listeners []lb.Listener
	if svc != nil {
		service = table.Plain.Cell(NameOf(svc).String())
		about, addresses = "Service/"+service.Text, published(svc)
	}
	if b != nil {
		name, addresses = fmt.Sprintf("%s (%d)", b.Name, b.ID), nil
		kind, location, listeners = b.Type, b.Location, b.Listeners
		for _, a := range []netip.Addr{b.IPv4, b.IPv6, b.PrivateIP} {
			if a.IsValid() && (a == b.PrivateIP || b.Public) {
				addresses = append(addresses, a.String())
			}
		}
	}
	if shared != "" {
		name += ", shared as " + shared
	}
	head := []any{service, name, addresses, table.OrNone(kind), table.OrNone(location)}
	repeat := func(cells []any) {
		for i := range cells {
			cells[i] = table.Repeated(cells[i])
		}
	}
	add := func(cells ...any) {
		t.Add(append(head, cells...)...).About = about
		repeat(head)
	}
	for _, l := range listeners {
		port := []any{
			fmt.Sprintf("%d → %d %s", l.Port, l.DestinationPort, l.Protocol), checkText(l.Check),
		}
		if len(b.Targets) == 0 {
			add(port[0], port[1], table.Bad.Cell("no targets"), "")
		}
		for _, target := range t.sorted(b.Targets) {
			add(port[0], port[1], t.title(target), health(b, l.Port, target))
			repeat(port)
		}
	}
	if len(listeners) == 0 {
		add("", "", "", "")
	}
}

// published returns the addresses in a Service's status.
func published(svc *corev1.Service) (out []string) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		out = append(out, in.IP+in.Hostname)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func health(b *lb.State, port int, t lb.Target) table.Cell {
	verdict, cause := b.Verdicts[port][t], b.Why[port][t].String()
	tones := map[lb.Verdict]table.Tone{
		lb.Healthy: table.Good, lb.Unhealthy: table.Bad, lb.Unknown: table.Warn,
	}
	return tones[verdict].Cell(strings.TrimSuffix(verdict.String()+": "+cause, ": "))
}

// sorted returns targets of Nodes by name, then other servers by ID, then other addresses.
func (t *balancerTable) sorted(targets []lb.Target) []lb.Target {
	return slices.SortedStableFunc(slices.Values(targets), func(a, b lb.Target) int {
		x, y := t.node(a), t.node(b)
		if (x == "") != (y == "") {
			return cmp.Compare(y, x)
		}
		return cmp.Or(cmp.Compare(x, y), a.Address.Compare(b.Address), cmp.Compare(a.Server, b.Server))
	})
}

// title returns the Node's name, a pod's address with its Node, or the server's address or ID.
func (t *balancerTable) title(target lb.Target) string {
	title := "server " + strconv.FormatInt(target.Server, 10)
	switch node := t.node(target); {
	case node != "" && target.Pod():
		title = "pod " + target.Address.String() + " on " + node
	case node != "":
		title = node
	case target.Address.IsValid():
		title = "IP " + target.Address.String()
	}
	if target.Private {
		title += " (private)"
	}
	return title
}

func checkText(c lb.HealthCheck) string {
	text := c.Protocol
	if c.TLS {
		text = lb.ProtocolHTTPS
	}
	return fmt.Sprintf("%s :%d%s", text, c.Port, c.Path)
}

// nodesOfTargets returns a lookup of a target's Node, or of the Node that runs a target pod.
func (s *Snapshot) nodesOfTargets() func(lb.Target) string {
	servers, addresses := map[int64]string{}, map[netip.Addr]string{}
	for _, n := range s.Nodes {
		if id, err := kube.ParseProviderID(n.Spec.ProviderID); err == nil {
			servers[id] = n.Name
		}
		if _, err := kube.ParseDedicatedID(n.Spec.ProviderID); err == nil {
			for _, a := range slices.Concat(kube.InternalIPs(n), kube.ExternalIPs(n)) {
				addresses[a] = n.Name
			}
		}
	}
	return func(t lb.Target) string {
		if t.Address.IsValid() && !t.Pod() {
			return addresses[t.Address]
		}
		return servers[t.Server]
	}
}
