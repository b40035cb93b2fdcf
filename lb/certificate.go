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

// managedPrefix is the prefix of the default names of managed certificates, the same as the
// Hetzner controller's.
const managedPrefix = "ccm-managed-certificate-"

// labelStaging is the cloud's own label to use the certificate authority's test environment.
const labelStaging = "HC-Use-Staging-CA"

// ManagedCertificate is a certificate that the cloud obtains and renews.
type ManagedCertificate struct {
	Name    string
	Domains []string // sorted
	Staging bool
}

// certificateManaged is the type of certificate that the cloud obtains.
const certificateManaged = "managed"

func (s settings) managed() bool { return s.certificateType == certificateManaged }

// Labels returns the labels of such a certificate. LabelPeer is set because the Hetzner
// controller, which uses the same name, looks for it: a cluster can return to that controller.
func (m ManagedCertificate) Labels(o Owner) map[string]string {
	labels := o.Labels()
	labels[LabelPeer] = o.UID
	if m.Staging {
		labels[labelStaging] = "true"
	}
	return labels
}

// Certificate is an existing certificate.
type Certificate struct {
	ID      int64
	Name    string
	Labels  map[string]string
	Managed bool
	Domains []string
	// Pending: the cloud is obtaining it.
	Pending bool
	// Failed is why the cloud could not obtain a managed certificate.
	Failed string
	// Users are the IDs of the load balancers that use it.
	Users []int64
}

// ownedBy reports whether a certificate was created for this owner, by this controller or by the
// Hetzner controller for the same Service.
func (c Certificate) ownedBy(o Owner) bool {
	_, ours := c.Labels[LabelCluster] // perhaps of another cluster with a copy of the Service
	return c.Managed && (o.Owns(c.Labels) || !ours && c.Labels[LabelPeer] == o.UID)
}

func (c Certificate) is(m ManagedCertificate) bool {
	return slices.Equal(slices.Sorted(slices.Values(c.Domains)), m.Domains) &&
		(c.Labels[labelStaging] == "true") == m.Staging
}

// NeedsCertificates reports whether the project's certificates must be listed to resolve the spec.
// IDs alone do not need that, unless Services may use labelled certificates only.
func (s Spec) NeedsCertificates() bool {
	looksUp := func(ref string) bool {
		_, isID := ReferenceID(ref)
		return s.LabelledCertificates || !isID
	}
	return s.Managed != nil || slices.ContainsFunc(s.references(), looksUp)
}

func (s Spec) references() []string {
	all := slices.Clone(s.Certificates)
	for _, refs := range s.PortCertificates {
		all = append(all, refs...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Resolve adds the IDs of the wanted certificates to the spec. A managed certificate that does not
// exist yet is an Op; certificates must be listed again after it. Each note names a certificate
// that cannot be used: then the load balancer must not be changed. Notes with an Op mean that the
// Op may fix the cause, if it is not repeated all the time.
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

func (s Spec) resolveReferences(
	field string, refs []string, have []Certificate,
) (ids []int64, notes []Note) {
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
		return s, []Op{CreateCertificate{Owner: s.Owner, Certificate: s.Managed.beside(s.Owner, have)}},
			nil
	}
	// Prefer an issued certificate, then the oldest: a copied label must not move traffic.
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

// beside returns the certificate with a name that no older certificate of the same owner has.
func (m ManagedCertificate) beside(o Owner, have []Certificate) ManagedCertificate {
	if !slices.ContainsFunc(have, func(c Certificate) bool {
		return c.Name == m.Name && c.ownedBy(o)
	}) {
		return m
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %t", m.Domains, m.Staging)
	m.Name = fmt.Sprintf("%s-%08x", m.Name[:min(len(m.Name), 119)], h.Sum32())
	return m
}

// Surplus returns Ops to delete the owner's managed certificates that the load balancer no longer
// needs; they are executed last. A certificate that another load balancer uses is kept.
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
