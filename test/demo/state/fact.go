package state

import (
	"fmt"
	"strings"
)

// The milestones of a machine, in the expected order.
const (
	Joined      = "joined"
	Unavailable = "NetworkUnavailable=True"
	PodCIDRs    = "podCIDRs"
	Initialized = "initialized"
	Routed      = "route"
	Available   = "NetworkUnavailable=False"
	Untainted   = "taints gone"
	Ready       = "Ready"
)

// Milestones returns all of them.
func Milestones() []string {
	return []string{Joined, Unavailable, PodCIDRs, Initialized, Routed, Available, Untainted, Ready}
}

// The milestones of a Service. Its targets have facts of their own.
const (
	Created     = "Service"
	Balanced    = "load balancer"
	Listens     = "listen port"
	HealthCheck = "health check"
	Address     = "address"
)

const (
	rented  = "server"
	silent  = "Ready=Unknown"
	network = "network" // subject of routes outside of all podCIDRs
)

func targetIs(machine string) string    { return "target " + machine }
func healthyIs(machine string) string   { return machine + " healthy" }
func unhealthyIs(machine string) string { return machine + " unhealthy" }

// Fact is something that is true of a subject: a machine, a Service.
type Fact struct {
	Subject, What string
	// Detail is printed when the fact becomes true.
	Detail string
	// End is printed when it is no longer true; empty: that is not reported.
	End string
	// Machine is the machine that the fact makes part of the cluster; empty: none.
	Machine string
	// Starts: the subject's time counts from here. Ends: and again from when this is no longer
	// true.
	Starts, Ends bool
}

// Facts are all facts, machines first, each in the order of its milestones.
func (w *State) Facts() []Fact {
	facts := w.serverFacts()
	for _, n := range w.SortedNodes() {
		facts = append(facts, w.nodeFacts(n)...)
	}
	facts = append(facts, w.routeFacts()...)
	for _, s := range w.sortedServices() {
		facts = append(facts, w.serviceFacts(s)...)
	}
	return facts
}

func (w *State) serverFacts() []Fact {
	var facts []Fact
	for _, s := range w.Cloud.Servers {
		f := Fact{
			Subject: s.Name, What: rented, Ends: true, End: "server deleted in the cloud",
			Detail: fmt.Sprintf("%s in %s", s.Type, s.Location),
		}
		if s.PrivateIP.IsValid() {
			f.Detail += fmt.Sprintf(", %s in the network", s.PrivateIP)
		}
		facts = append(facts, f)
	}
	return facts
}

func (w *State) nodeFacts(n Node) []Fact {
	facts := []Fact{{
		Subject: n.Name, What: Joined, Starts: true, End: "Node deleted", Machine: n.Name,
		Detail: "tainted: " + n.taints(),
	}}
	add := func(when bool, what, format string, args ...any) {
		if when {
			facts = append(facts, Fact{Subject: n.Name, What: what, Detail: fmt.Sprintf(format, args...)})
		}
	}
	v4, has4 := n.podCIDR(true)
	v6, has6 := n.podCIDR(false)
	add(n.Unavailable.Status == "True", Unavailable, "%s: %s", n.Unavailable.Reason, n.Unavailable.Message)
	add(has4 && has6, PodCIDRs, "%s, %s", v4, v6)
	add(n.initialized(), Initialized, "%s, %s in %s, %s, %s", n.ProviderID, n.InstanceType, n.Region, n.InternalIP, n.ExternalIP)
	add(n.Unavailable.Status == "False", Available, "%s: %s", n.Unavailable.Reason, n.Unavailable.Message)
	add(len(n.Taints) == 0, Untainted, "pods may be scheduled")
	add(n.Ready.Status == "True", Ready, "")
	add(n.Ready.Status == "Unknown", silent, "%s", n.Ready.Message)
	return facts
}

// routeFacts names each route by the machine with the podCIDR.
func (w *State) routeFacts() []Fact {
	var facts []Fact
	for _, r := range w.Cloud.Routes {
		holder, held := w.holders[r.Dst]
		f := Fact{Subject: holder, What: Routed, Machine: holder, End: "route removed", Detail: fmt.Sprintf("%s via %s", r.Dst, r.Via)}
		if !held {
			f.Subject, f.What = network, fmt.Sprintf("route %s", r.Dst)
			f.End = f.What + " removed"
		} else if server, alive := w.Cloud.server(holder); alive && server.PrivateIP != r.Via {
			f.What, f.End = fmt.Sprintf("wrong route via %s", r.Via), "wrong route removed"
		}
		facts = append(facts, f)
	}
	return facts
}

func (w *State) serviceFacts(s Service) []Fact {
	facts := []Fact{{
		Subject: s.Name, What: Created, Starts: true, End: "Service deleted",
		Detail: fmt.Sprintf("externalTrafficPolicy: %s, healthCheckNodePort %d", s.Policy, s.HealthCheckNodePort),
	}}
	add := func(f Fact) { f.Subject = s.Name; facts = append(facts, f) }
	b, ok := w.Cloud.balancerOf(s)
	if ok {
		add(Fact{What: Balanced, Detail: fmt.Sprintf("%s in %s", b.Type, b.Location), End: "load balancer deleted"})
	}
	for _, l := range b.Listeners {
		if l.Port == s.Port && l.NodePort == s.NodePort {
			add(Fact{What: Listens, Detail: fmt.Sprintf("%d → NodePort %d", l.Port, l.NodePort)})
		}
		if l.Check.truthful(s) {
			add(Fact{What: HealthCheck, Detail: fmt.Sprintf("%s on port %d of each target", l.Check, l.Check.Port)})
		}
	}
	for _, t := range b.Targets {
		name := w.renter(t.Server)
		add(Fact{What: targetIs(name), Machine: name, End: targetIs(name) + " removed", Detail: t.way()})
		switch t.Health {
		case "healthy":
			add(Fact{What: healthyIs(name)})
		case "unhealthy":
			add(Fact{What: unhealthyIs(name)})
		}
	}
	if len(s.Addresses) > 0 {
		add(Fact{What: Address, Detail: strings.Join(s.Addresses, ", ")})
	}
	return facts
}

// truthful: the check requests from kube-proxy whether the machine itself can serve.
func (c Check) truthful(s Service) bool {
	return c.Protocol == "http" && c.Path == "/healthz" && c.Port == s.HealthCheckNodePort
}

func (t Target) way() string {
	if t.Private {
		return "through the network"
	}
	return "through its public address"
}

// renter is the name of a server, also of a deleted one.
func (w *State) renter(id int64) string {
	if name, known := w.renters[id]; known {
		return name
	}
	return fmt.Sprintf("server %d", id)
}
