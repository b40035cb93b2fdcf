package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/editdistance"
)

// The annotations with a Service's requests. Those of MetalLB and kube-vip are accepted to ease
// migration: https://metallb.io/usage/, https://kube-vip.io/docs/usage/.
const (
	annotationAddresses = "underlay.dev/addresses"
	annotationPool      = "underlay.dev/address-pool"
	annotationKey       = "underlay.dev/address-sharing-key"

	fieldLoadBalancerIP = "spec.loadBalancerIP"
)

func addressAnnotations() []string {
	return []string{
		"metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs",
		"kube-vip.io/loadbalancerIPs",
	}
}

func poolAnnotations() []string {
	return []string{annotationPool, "metallb.io/address-pool", "metallb.universe.tf/address-pool"}
}

func keyAnnotations() []string {
	return []string{annotationKey, "metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip"}
}

// request contains a Service's requests and notes about invalid requests.
type request struct {
	addresses.Claim
	notes []note
	// addressFields and poolField name the annotation or field of each request, for refusals.
	addressFields map[string]string
	poolField     string
}

// requestOf parses the requests of a Service. If a request is invalid, or the namespace is not
// cached yet, the Service keeps its addresses and gets no others: a wrong address would be kept for
// life.
func requestOf(
	svc *corev1.Service, pools []Pool, namespaces map[string]labels.Set, have []netip.Addr,
) request {
	a := request{Claim: addresses.Claim{
		UID: string(svc.UID), Namespace: svc.Namespace, Name: svc.Name,
		Created:  svc.CreationTimestamp.Time,
		Families: families(svc), Local: local(svc), Before: shown(svc),
		Selector: labels.Set(svc.Spec.Selector).String(),
	}}
	if policy := svc.Spec.IPFamilyPolicy; policy != nil {
		a.All = *policy == corev1.IPFamilyPolicyRequireDualStack
	}
	if a.Local {
		a.Check = int(svc.Spec.HealthCheckNodePort)
	}
	for _, p := range svc.Spec.Ports {
		a.Ports = append(a.Ports, addresses.Port{Protocol: string(p.Protocol), Number: int(p.Port)})
	}
	_, a.Key = first(svc, keyAnnotations())
	a.poolField, a.Pool = first(svc, poolAnnotations())
	known := a.admit(pools, namespaces)
	a.readAddresses(svc)
	if !known || len(a.notes) > 0 {
		a.Addresses, a.Pool, a.Before = nil, "", nil
		a.Families = slices.DeleteFunc(a.Families, func(f addresses.Family) bool {
			_, has := addresses.OfFamily(have, f)
			return !has
		})
	}
	a.misspelled(svc)
	return a
}

func (a *request) misspelled(svc *corev1.Service) {
	names := slices.Concat([]string{annotationAddresses}, addressAnnotations(), poolAnnotations(),
		keyAnnotations())
	for _, name := range slices.Sorted(maps.Keys(svc.Annotations)) {
		if meant, slip := editdistance.Meant(name, names); slip {
			a.notes = append(a.notes, note{
				reason: reasonUnknown, field: name, value: svc.Annotations[name], met: true,
				text: fmt.Sprintf("no such annotation, without effect: did you mean %s?", meant),
			})
		}
	}
}

// admit sets the pools that the Service's namespace may use. It reports false if they depend on a
// namespace that is not in the cache.
func (a *request) admit(pools []Pool, namespaces map[string]labels.Set) bool {
	set, known := namespaces[a.Namespace]
	selective := false
	for _, p := range pools {
		selective = selective || p.Namespaces != nil
		if p.Namespaces == nil || known && p.Namespaces.Matches(set) {
			a.Admitted = append(a.Admitted, p.Name)
		}
	}
	return known || !selective
}

func first(svc *corev1.Service, names []string) (name, value string) {
	for _, name := range names {
		if value := strings.TrimSpace(svc.Annotations[name]); value != "" {
			return name, value
		}
	}
	return names[0], ""
}

// readAddresses reads the requested addresses. Of each family, the first counts, in the order: our
// annotation, the field, other projects' annotations. kube-vip writes an IPv4 address into the
// field and both families into its annotation.
func (a *request) readAddresses(svc *corev1.Service) {
	a.addressFields = make(map[string]string)
	a.readList(annotationAddresses, svc.Annotations[annotationAddresses])
	a.readList(fieldLoadBalancerIP, svc.Spec.LoadBalancerIP)
	for _, name := range addressAnnotations() {
		a.readList(name, svc.Annotations[name])
	}
}

func (a *request) readList(field, text string) {
	if strings.TrimSpace(text) == "" || len(a.Addresses) == len(a.Families) {
		return
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		address, err := netip.ParseAddr(part)
		wrong := func(what string) {
			a.notes = append(a.notes, note{reason: reasonInvalid, field: field, value: part, text: what})
		}
		request, twice := a.Wanted(addresses.FamilyOf(address))
		switch family := addresses.FamilyOf(address); {
		case err != nil || address.Zone() != "" || address.Is4In6():
			wrong("is not an address: write one, or one of each family with a comma between, such as 192.0.2.17,2001:db8::17")
		case address.IsUnspecified() && field != annotationAddresses:
			// kube-vip's value for an address of its own choice
		case !slices.Contains(a.Families, family):
			wrong(fmt.Sprintf("is an %s address, and the Service has no such family: add it to spec.ipFamilies, or leave the address out", family))
		case twice && a.addressFields[request.String()] == field:
			wrong(fmt.Sprintf("is a second %s address, and a Service has one of each family: leave one out",
				family))
		case !twice:
			a.Addresses = append(a.Addresses, address)
			a.addressFields[address.String()] = field
		}
	}
}

// refused converts a refusal to a note that names the annotation or field of the request.
func (a request) refused(r addresses.Refusal) note {
	n := note{reason: string(r.Reason), field: r.Field, value: r.Value, text: r.Text}
	switch {
	case n.field == annotationAddresses && a.addressFields[r.Value] != "":
		n.field = a.addressFields[r.Value]
	case n.field == annotationPool && a.Pool == "":
		n.field = "" // it requests no pool
	case n.field == annotationPool:
		n.field = a.poolField
	}
	return n
}
