package webui

import (
	"net/netip"
	"strings"
)

// Hit is what a search found.
type Hit struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Why says what of it was found.
	Why string `json:"why"`
}

// Find searches names, IDs and addresses. An address is also found in the podCIDR or
// the destination that contains it. At most limit Hits come back, and how many there
// are in all.
func (v *View) Find(text string, limit int) (hits []Hit, all int) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return []Hit{}, 0
	}
	q := query{text: text}
	q.address, _ = netip.ParseAddr(text)
	if p, err := netip.ParsePrefix(text); err == nil {
		q.prefix = p.Masked()
	}
	hits = []Hit{}
	add := func(id, title, why string) {
		if why == "" {
			return
		}
		if all++; len(hits) < limit {
			hits = append(hits, Hit{id, title, why})
		}
	}
	for i := range v.Groups {
		for j := range v.Groups[i].Machines {
			m := &v.Groups[i].Machines[j]
			add(m.ID, m.Name, q.machine(m))
		}
	}
	for i := range v.Services {
		add(v.Services[i].ID, v.Services[i].Name, q.service(&v.Services[i]))
	}
	for i := range v.Table.Routes {
		r := &v.Table.Routes[i]
		if r.Node == "" && (q.matches(r.Destination) || strings.Contains(r.Gateway, q.text)) {
			add(r.ID, r.Destination.String(), r.Whose+" route to "+r.Leads)
		}
	}
	return hits, all
}

// query is what is looked for, as text and if it is one as an address or a prefix.
type query struct {
	text    string
	address netip.Addr
	prefix  netip.Prefix
}

func (q query) matches(p netip.Prefix) bool {
	switch {
	case q.address.IsValid():
		return p.Contains(q.address)
	case q.prefix.IsValid():
		return p.Overlaps(q.prefix)
	}
	return strings.Contains(p.String(), q.text)
}

// is reports whether an address is the one, lies in the prefix, or has the text in it.
func (q query) is(a netip.Addr) bool {
	switch {
	case q.address.IsValid():
		return a == q.address
	case q.prefix.IsValid():
		return q.prefix.Contains(a)
	}
	return strings.Contains(a.String(), q.text)
}

// machine says what of a Machine was found, empty if nothing.
func (q query) machine(m *Machine) string {
	if strings.Contains(strings.ToLower(m.Name), q.text) {
		return m.State
	}
	for _, r := range m.Ranges {
		if q.matches(r.Prefix) {
			return "podCIDR " + r.Prefix.String()
		}
	}
	for _, a := range m.addresses {
		if q.is(a) {
			return "address " + a.String()
		}
	}
	if strings.Contains(m.providerID, q.text) {
		return m.providerID
	}
	return ""
}

func (q query) service(s *Service) string {
	if strings.Contains(strings.ToLower(s.Name), q.text) {
		return s.State
	}
	if strings.Contains(strings.ToLower(s.By), q.text) {
		return s.By
	}
	for _, text := range s.Addresses {
		if a, err := netip.ParseAddr(text); err == nil && q.is(a) || err != nil && strings.Contains(text, q.text) {
			return "address " + text
		}
	}
	return ""
}
