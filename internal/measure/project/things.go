package project

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// kind is a kind of resource that runs make: the word that the API has for one, as actions and
// replies name it.
type kind string

const (
	server       kind = "server"
	network      kind = "network"
	loadBalancer kind = "load_balancer"
	floatingIP   kind = "floating_ip"
	primaryIP    kind = "primary_ip"
	sshKeyKind   kind = "ssh_key"
)

// kinds are in the order in which things can be removed: load balancers and servers let go of
// addresses and networks.
var kinds = [...]kind{loadBalancer, server, floatingIP, primaryIP, network, sshKeyKind}

// plural is the word for several, which is that of the collection's path too.
func (k kind) plural() string { return string(k) + "s" }

// String is for people.
func (k kind) String() string {
	switch k {
	case floatingIP:
		return "floating IP"
	case primaryIP:
		return "primary IP"
	case sshKeyKind:
		return "SSH key"
	}
	return strings.ReplaceAll(string(k), "_", " ")
}

// collection is the kind whose resources are below a path's first segment.
func collection(segment string) (kind, bool) {
	for _, k := range kinds {
		if k.plural() == segment {
			return k, true
		}
	}
	return "", false
}

// ref names a resource.
type ref struct {
	kind kind
	id   int64
}

// thing is a resource of the project as a reply showed it.
type thing struct {
	ref
	name    string
	run     string // the label's value; empty: it has none
	created time.Time
	seen    time.Time // when a reply showed it last
	// holds are the resources that would be changed if it were removed.
	holds []ref
	// addresses are the IDs of the primary IPs that a server or load balancer has.
	addresses []int64
	// volumes: it has volumes, which are none of the run's.
	volumes bool
}

// shown is what replies show of any kind of resource, as far as it matters here.
type shown struct {
	ID      int64             `json:"id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Created time.Time         `json:"created"`

	// Of a server.
	Volumes []int64 `json:"volumes"`
	// Of a server or load balancer.
	PublicNet struct {
		IPv4, IPv6  struct{ ID int64 }
		FloatingIPs []int64 `json:"floating_ips"`
	} `json:"public_net"`
	// Of a network.
	Servers       []int64 `json:"servers"`
	LoadBalancers []int64 `json:"load_balancers"`
	// Of a floating IP.
	Server *int64 `json:"server"`
	// Of a primary IP.
	AssigneeID   *int64 `json:"assignee_id"`
	AssigneeType string `json:"assignee_type"`
}

// parse reads a resource of a reply. Something without an ID is none.
func parse(k kind, text json.RawMessage) (thing, bool) {
	var s shown
	if json.Unmarshal(text, &s) != nil || s.ID <= 0 {
		return thing{}, false
	}
	t := thing{ref: ref{k, s.ID}, name: s.Name, run: s.Labels[Label], created: s.Created}
	hold := func(k kind, ids ...int64) {
		for _, id := range ids {
			t.holds = append(t.holds, ref{k, id})
		}
	}
	for _, id := range []int64{s.PublicNet.IPv4.ID, s.PublicNet.IPv6.ID} {
		if id > 0 {
			t.addresses = append(t.addresses, id)
		}
	}
	switch k {
	case server:
		hold(floatingIP, s.PublicNet.FloatingIPs...)
		t.volumes = len(s.Volumes) > 0
	case network:
		hold(server, s.Servers...)
		hold(loadBalancer, s.LoadBalancers...)
	case floatingIP:
		if s.Server != nil {
			hold(server, *s.Server)
		}
	case primaryIP:
		if s.AssigneeID != nil {
			hold(kind(s.AssigneeType), *s.AssigneeID)
		}
	}
	return t, true
}

// of reports whether a thing was made by a run: its label and its name say so.
func (t thing) of(run string) bool {
	return run != "" && t.run == run && strings.HasPrefix(t.name, namesOf(run))
}

// count adds to a kind's count; nil for kinds that cost nothing and aren't planned.
func count(of *measure.Things, k kind) *int {
	switch k {
	case server:
		return &of.Servers
	case network:
		return &of.Networks
	case loadBalancer:
		return &of.LoadBalancers
	case floatingIP:
		return &of.FloatingIPs
	case primaryIP:
		return &of.PrimaryIPs
	}
	return nil
}
