package lb

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// managedPrefix begins the names that managed certificates get by default, the Hetzner
// controller's.
const managedPrefix = "ccm-managed-certificate-"

// labelStaging makes the cloud use the certificate authority's test environment; it is the cloud's
// own name.
const labelStaging = "HC-Use-Staging-CA"

// ManagedCertificate is a certificate that the cloud obtains and renews.
type ManagedCertificate struct {
	Name    string
	Domains []string // sorted
	Staging bool
}

// Labels are what such a certificate of a Service carries. The Hetzner controller, which takes the
// same name, looks for its label, so that the way back is open.
func (m ManagedCertificate) Labels(o Owner) map[string]string {
	labels := o.Labels()
	labels[LabelPeer] = o.UID
	if m.Staging {
		labels[labelStaging] = "true"
	}
	return labels
}

// Certificate is a certificate as it is.
type Certificate struct {
	ID      int64
	Name    string
	Labels  map[string]string
	Managed bool
	Domains []string
	// Pending: the cloud is about to obtain it.
	Pending bool
	// Failed says why a managed certificate could not be obtained.
	Failed string
	// Users are the load balancers that have it.
	Users []int64
}

// ownedBy reports whether a certificate was made for this owner: by us, or by the Hetzner
// controller for the same Service.
func (c Certificate) ownedBy(o Owner) bool {
	_, ours := c.Labels[LabelCluster] // perhaps another cluster's, with a copy of the Service
	return c.Managed && (o.Owns(c.Labels) || !ours && c.Labels[LabelPeer] == o.UID)
}

func (c Certificate) is(m ManagedCertificate) bool {
	return slices.Equal(slices.Sorted(slices.Values(c.Domains)), m.Domains) && (c.Labels[labelStaging] == "true") == m.Staging
}

// NeedsCertificates reports whether certificates must be looked at to know what the spec means: IDs
// say all by themselves, unless the certificates' labels have a say.
func (s Spec) NeedsCertificates() bool {
	looksUp := func(ref string) bool {
		_, isID := ReferenceID(ref)
		return s.LabelledCertificates || !isID
	}
	return s.Managed != nil || slices.ContainsFunc(s.references(), looksUp)
}

// references are all IDs and names of certificates, sorted, each once.
func (s Spec) references() []string {
	all := slices.Clone(s.Certificates)
	for _, refs := range s.PortCertificates {
		all = append(all, refs...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Resolve puts the IDs of the wanted certificates into the spec. A managed certificate that there
// is not yet is an Op; after it, certificates must be looked at again. The notes name certificates
// that cannot be used: without them nothing of the load balancer may be changed. Notes and an Op
// mean that the Op may mend what they say, if it is not done all the time.
func (s Spec) Resolve(have []Certificate) (Spec, []Op, []Note) {
	var notes []Note
	for _, port := range slices.Sorted(maps.Keys(s.PortCertificates)) {
		ids, unusable := s.resolveReferences(AnnotationPorts, s.PortCertificates[port], have)
		s = s.certified(ids, func(number int) bool { return number == port })
		notes = append(notes, unusable...)
	}
	if s.Managed != nil && len(notes) == 0 {
		return s.resolveManaged(have)
	}
	ids, unusable := s.resolveReferences(annotationCertificates, s.Certificates, have)
	return s.withCertificates(ids), nil, append(notes, unusable...)
}

// resolveReferences finds the certificates that IDs and names in an annotation mean, and says why
// there is none.
func (s Spec) resolveReferences(field string, refs []string, have []Certificate) (ids []int64, notes []Note) {
	for _, ref := range refs {
		what, means := "name", func(c Certificate) bool { return c.Name == ref }
		if id, isID := ReferenceID(ref); isID {
			if !s.LabelledCertificates {
				ids = append(ids, id)
				continue
			}
			what, means = "ID", func(c Certificate) bool { return c.ID == id }
		}
		i := slices.IndexFunc(have, means)
		switch {
		case i < 0:
			notes = append(notes, errorNote(ReasonInvalid, field, ref,
				"no certificate has this %s: upload it, or correct the %[1]s", what))
		case !s.mayUse(have[i]):
			notes = append(notes, errorNote(ReasonCertificate, field, ref,
				`the certificate is not labelled for namespace %s: run "hcloud certificate add-label %d %s=%[1]s" (several namespaces with dots between them), or use another one`,
				s.Namespace, have[i].ID, labelNamespaces))
		default:
			ids = append(ids, have[i].ID)
		}
	}
	return ids, notes
}

func (s Spec) resolveManaged(have []Certificate) (Spec, []Op, []Note) {
	var mine []Certificate
	for _, c := range have {
		if c.ownedBy(s.Owner) && c.is(*s.Managed) {
			mine = append(mine, c)
		}
	}
	if len(mine) == 0 {
		return s, []Op{CreateCertificate{Owner: s.Owner, Certificate: s.Managed.beside(s.Owner, have)}}, nil
	}
	// One that was issued, and of several the oldest: a copied label does not move traffic.
	slices.SortFunc(mine, func(a, b Certificate) int {
		if (a.Failed == "") != (b.Failed == "") {
			return strings.Compare(a.Failed, b.Failed)
		}
		return cmp.Compare(a.ID, b.ID)
	})
	c, domains := mine[0], strings.Join(s.Managed.Domains, ",")
	switch {
	case c.Pending:
		return s, nil, []Note{errorNote(ReasonCertificatePending, annotationDomains, domains,
			"certificate %q is being obtained", c.Name)}
	case c.Failed != "":
		note := errorNote(ReasonCertificate, annotationDomains, domains,
			"the cloud could not obtain certificate %q (%s): mend what it names, or set other "+
				"domains; it is tried again once a day, and at once if you retry it in the cloud",
			c.Name, c.Failed)
		return s, []Op{RetryCertificate{ID: c.ID, Name: c.Name}}, []Note{note}
	}
	return s.withCertificates([]int64{c.ID}), nil, nil
}

// beside returns the certificate under a name that an older one of the same owner does not have.
func (m ManagedCertificate) beside(o Owner, have []Certificate) ManagedCertificate {
	if !slices.ContainsFunc(have, func(c Certificate) bool { return c.Name == m.Name && c.ownedBy(o) }) {
		return m
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %t", m.Domains, m.Staging)
	m.Name = fmt.Sprintf("%s-%08x", m.Name[:min(len(m.Name), 119)], h.Sum32())
	return m
}

// Surplus names the owner's managed certificates that the load balancer does not need any more, as
// Ops that are done after everything else. What somebody else uses stays.
func Surplus(want Spec, have []Certificate, balancer int64) []Op {
	var ops []Op
	for _, c := range have {
		used := slices.ContainsFunc(want.Listeners, func(l Listener) bool {
			return slices.Contains(strings.Split(l.HTTP.Certificates, ","), strconv.FormatInt(c.ID, 10))
		})
		others := slices.ContainsFunc(c.Users, func(id int64) bool { return id != balancer })
		if c.ownedBy(want.Owner) && !used && !others {
			ops = append(ops, DeleteCertificate{ID: c.ID, Name: c.Name})
		}
	}
	return ops
}
