package lb

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Annotations that name primary IPs.
const (
	AnnotationPrimaryIPv4 = OwnPrefix + "primary-ipv4"
	AnnotationPrimaryIPv6 = OwnPrefix + "primary-ipv6"
)

// PrimaryIP is a public address of the project that outlives the object it is assigned to. A load
// balancer can be created with one of each family and keeps it: the cloud cannot replace it.
type PrimaryIP struct {
	ID     int64
	Name   string
	Labels map[string]string
	// Net is an IPv4 address or an IPv6 /64.
	Net         netip.Prefix
	Location    string
	NetworkZone string // of Location
	// Holder is the object that it is assigned to, such as "load balancer 17"; empty: unassigned.
	Holder string
	// AutoDelete: the cloud deletes it together with its holder.
	AutoDelete bool
}

func (ip PrimaryIP) family() string {
	if ip.Net.Addr().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// Is reports whether it has this name or ID. A number is always an ID.
func (ip PrimaryIP) Is(named string) bool {
	if id, isID := ReferenceID(named); isID {
		return ip.ID == id
	}
	return ip.Name == named
}

// ReferenceID parses a reference to a primary IP or a certificate that is an ID, not a name.
func ReferenceID(named string) (int64, bool) {
	id, err := strconv.ParseInt(named, 10, 64)
	return id, err == nil && id > 0
}

// PrimaryIPRef is a Service's reference to a primary IP, and the result of its lookup.
type PrimaryIPRef struct {
	Named string // ID or name; empty: the cloud creates a new address
	ID    int64  // 0: not looked up
	// Settled: the load balancer has it, or will be created with it, and no lookup or note is
	// needed. A label records that, so that an unchanged load balancer costs no request.
	Settled bool
}

// GivenAddress is a primary IP that the configuration assigns to a Service, by name or ID.
type GivenAddress struct{ Name, Namespace, Service string }

// Labels of a load balancer that record the references that resolved to its primary IPs.
const (
	labelPrimaryIPv4 = OwnPrefix + "primary-ipv4"
	labelPrimaryIPv6 = OwnPrefix + "primary-ipv6"
)

// mark returns the label's value: the reference, or a hash if it is not a valid label value.
func (r PrimaryIPRef) mark() string {
	if labelValue(r.Named) {
		return r.Named
	}
	return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(r.Named)))[:39]
}

func validPrimaryIP(v string) error {
	if _, isID := ReferenceID(v); !isID && strings.Trim(v, "0123456789") == "" {
		return errors.New("set the primary IP's ID or name; a number is an ID")
	}
	return validName(v)
}

// reference is a PrimaryIPRef with everything that depends on its family.
type reference struct {
	*PrimaryIPRef
	annotation, label, family string
	id                        int64      // of the load balancer's primary IP
	address                   netip.Addr // of the load balancer
}

// addressReferences returns the spec's non-empty references.
func (s *Spec) addressReferences(have State) []reference {
	all := []reference{
		{&s.PrimaryIPv4, AnnotationPrimaryIPv4, labelPrimaryIPv4, "IPv4", have.PrimaryIPv4, have.IPv4},
		{&s.PrimaryIPv6, AnnotationPrimaryIPv6, labelPrimaryIPv6, "IPv6", have.PrimaryIPv6, have.IPv6},
	}
	return slices.DeleteFunc(all, func(r reference) bool { return r.Named == "" })
}

// remembered reports whether a label records that the load balancer has the primary IP.
func (r reference) remembered(have State) bool {
	return have.Exists() && have.Labels[r.label] == r.mark()
}

// had reports whether the load balancer has it, by its address if the ID is unknown.
func (r reference) had(ip PrimaryIP) bool {
	return ip.ID == r.id || r.id == 0 && r.address.IsValid() && ip.Net.Contains(r.address)
}

// UnknownPrimaryIPs returns the IDs and names that must be looked up to resolve the spec.
func (s Spec) UnknownPrimaryIPs(have State) []string {
	var names []string
	for _, r := range s.addressReferences(have) {
		if !r.remembered(have) {
			names = append(names, r.Named)
		}
	}
	return names
}

// RememberedPrimaryIPs settles the references that the load balancer's labels record.
func (s Spec) RememberedPrimaryIPs(have State) Spec {
	for _, r := range s.addressReferences(have) {
		r.Settled = r.remembered(have)
	}
	return s
}

// WithPrimaryIPs resolves the spec's references. Found are the existing primary IPs among
// [Spec.UnknownPrimaryIPs].
//
// If a note is an [Error], the load balancer must not be created: it could never get the right
// addresses. An existing load balancer keeps its addresses.
func (s Spec) WithPrimaryIPs(have State, found []PrimaryIP) (Spec, []Note) {
	var notes []Note
	var usable []PrimaryIP
	for _, r := range s.addressReferences(have) {
		if r.remembered(have) {
			r.Settled = true
			continue
		}
		i := slices.IndexFunc(found, func(ip PrimaryIP) bool { return ip.Is(r.Named) })
		note := Note{Grade: Error, Reason: ReasonPrimaryIP, Field: r.annotation, Value: r.Named}
		switch {
		case have.Exists() && (i < 0 || !r.had(found[i])):
			note.Reason = ReasonImmutable
			note.Text = fmt.Sprintf("the load balancer %q keeps its address %s, because the cloud exchanges no address of one that exists: delete the Service and create it again, or remove this", have.Name, r.address)
		case i < 0:
			note.Text = "the project has no primary IP of this ID or name: correct it, or create the primary IP, which is looked for again within minutes"
		case !have.Exists():
			note.Reason, note.Text = s.unusable(r, found[i])
		}
		if note.Text != "" {
			notes = append(notes, note)
			continue
		}
		ip := found[i]
		r.ID, r.Settled = ip.ID, !ip.AutoDelete
		usable = append(usable, ip)
		if ip.AutoDelete {
			note.Grade, note.Text = Warning, fmt.Sprintf("the cloud will delete this primary IP together with the load balancer: to keep the address, run \"hcloud primary-ip update --auto-delete=false %d\"", ip.ID)
			notes = append(notes, note)
		}
	}
	if have.Exists() || len(usable) == 0 {
		return s, notes
	}
	s, misplaced := s.placedAt(usable)
	return s, slices.Concat(notes, misplaced)
}

// unusable returns why a load balancer must not be created with a primary IP, or no text. The
// reason must not disclose details of a primary IP that is not assigned to the Service.
func (s Spec) unusable(r reference, ip PrimaryIP) (reason, text string) {
	switch {
	case ip.family() != r.family:
		other := AnnotationPrimaryIPv4
		if ip.family() == "IPv6" {
			other = AnnotationPrimaryIPv6
		}
		return ReasonPrimaryIP,
			fmt.Sprintf("this primary IP is of family %s: name it in %s, and one of family %s here",
				ip.family(), other, r.family)
	case !s.mayHave(ip):
		return ReasonPrimaryIP, fmt.Sprintf(`the project's side does not give this primary IP to the Service: run "hcloud primary-ip add-label %d %s", or list it in loadBalancers.primaryIPs of the configuration`, ip.ID, s.consent())
	case ip.Holder != "":
		return ReasonPrimaryIPInUse, fmt.Sprintf("%s has this primary IP: delete that, unassign the primary IP if it is a server, or name another one", ip.Holder)
	}
	return ReasonPrimaryIP, ""
}

func (s Spec) mayHave(ip PrimaryIP) bool {
	return s.consented(ip.Labels) || slices.ContainsFunc(s.GivenAddresses, ip.Is)
}

// placedAt returns the spec with the location of the primary IPs, which cannot be moved.
func (s Spec) placedAt(ips []PrimaryIP) (Spec, []Note) {
	at := ips[0]
	note := Note{Grade: Error, Reason: ReasonPrimaryIP}
	annotated := s.Takeover.Annotated.Place
	switch {
	case len(ips) > 1 && ips[1].Location != at.Location:
		note.Field, note.Value = AnnotationPrimaryIPv6, s.PrimaryIPv6.Named
		note.Text = fmt.Sprintf("this primary IP is in %s and that of %s in %s: name two of one location",
			ips[1].Location, AnnotationPrimaryIPv4, at.Location)
	case annotated && s.Location != "" && s.Location != at.Location:
		note.Field, note.Value = AnnotationLocation, s.Location
		note.Text = fmt.Sprintf("the primary IP %q is in %s and cannot move: set that, remove this, or name another primary IP", at.Name, at.Location)
	case annotated && s.Location == "" && s.NetworkZone != at.NetworkZone:
		note.Field, note.Value = AnnotationNetworkZone, s.NetworkZone
		note.Text = fmt.Sprintf("the primary IP %q is in %s, in network zone %s, and cannot move: set that, remove this, or name another primary IP", at.Name, at.Location, at.NetworkZone)
	default:
		s.Location, s.NetworkZone = at.Location, ""
		return s, nil
	}
	return s, []Note{note}
}
