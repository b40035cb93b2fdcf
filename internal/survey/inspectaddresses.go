package survey

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// addressed tells of a Service which addresses it has, who holds them, and what it
// still waits for.
func (v *Inspection) addressed(s *Snapshot, svc *corev1.Service) error {
	v.fact("published", strings.Join(serviceRow(svc).Published, ", "))
	if !s.Saw(PartAddresses) {
		return nil
	}
	all, err := AddressesOf(s)
	if err != nil {
		return err
	}
	name := NameOf(svc).String()
	for _, row := range all.Addresses {
		if !slices.Contains(row.Services, name) {
			continue
		}
		v.fact("address", row.Title())
		if len(row.Services) > 1 {
			v.fact("shared", row.Address.String()+" by "+strings.Join(row.Services, ", "))
		}
		for _, note := range row.Notes {
			v.fact("note", row.Address.String()+": "+note)
		}
	}
	for _, row := range all.Waiting {
		if row.Service == name {
			v.fact("why", row.Why())
		}
	}
	for _, note := range all.Notes {
		v.fact("note", note)
	}
	return nil
}

// addressesOf tells which addresses a Node holds, and is to hold.
func (v *Inspection) addressesOf(s *Snapshot, node *corev1.Node) {
	if !s.AddressesOn() || !s.Saw(PartAddresses) {
		return
	}
	a := s.Addressing()
	for _, e := range a.Ledger.Entries() {
		if !e.HeldBy(node.Name) && !slices.Contains(a.Holders(e.Address), node.Name) {
			continue
		}
		row := s.addressRow(a, e)
		v.fact("address", row.Title()+" for "+strings.Join(row.Services, ", "))
		for _, note := range row.Notes {
			v.fact("note", row.Address.String()+": "+note)
		}
	}
	for _, r := range a.routers() {
		if r.Node == node.Name {
			v.fact("router", fmt.Sprintf("%s %s, %d prefixes announced", r.Router, r.Session(), r.Announced))
		}
	}
	if why := s.whyNoAddress(a, node); len(why) > 0 {
		v.fact("gets no addresses", strings.Join(why, "; "))
	}
}

// Title is the address with what holds it.
func (r AddressRow) Title() string {
	text := r.Address.String() + " " + r.State
	if by := r.By(); by != "" {
		text += ", by " + by
	}
	if r.Epoch > 0 {
		text += fmt.Sprintf(" with epoch %d", r.Epoch)
	}
	if r.Pool != "" {
		text += fmt.Sprintf("; pool %s, %s", r.Pool, r.Mover)
	}
	return text
}

// By is who is to hold it; empty: nobody.
func (r AddressRow) By() string {
	if len(r.Nodes) > 0 {
		return strings.Join(r.Nodes, ", ")
	}
	return r.Holder
}

// Session is the state of the session for people.
func (r RouterRow) Session() string {
	switch {
	case r.Established:
		return "established"
	case r.State != "":
		return r.State
	}
	return "down"
}

// Why is what the Service waits for.
func (r WaitingRow) Why() string {
	switch {
	case r.Accepted == nil:
		return "no cloud controller manager has looked at it yet"
	case r.Accepted.Status == string(metav1.ConditionTrue):
		return "the ledger has no address of it"
	}
	return strings.TrimPrefix(r.Accepted.Reason+": "+r.Accepted.Message, ": ")
}
