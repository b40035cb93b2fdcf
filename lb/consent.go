package lb

import (
	"fmt"
	"slices"
	"strings"
)

// A Service's author asks for what belongs to the whole project: a load balancer that somebody else
// made, or a certificate. Whoever owns the project agrees, by labels in the cloud or in the
// configuration. The labels' values are names of Kubernetes, which the cloud takes as they are: both
// allow 63 characters.
const (
	labelAdoptCluster   = "underlay.dev/adopt-cluster"
	labelAdoptNamespace = "underlay.dev/adopt-namespace"
	labelAdoptService   = "underlay.dev/adopt-service"
	// labelNamespaces holds the namespaces that may use a certificate, with dots between them.
	labelNamespaces = "underlay.dev/namespaces"
)

// Adoptable is a load balancer that the configuration gives to a Service.
type Adoptable struct{ Name, Namespace, Service string }

// CertificateUse says which certificates of the project a Service may name.
type CertificateUse string

const (
	// CertificatesAny lets every Service use every certificate.
	CertificatesAny CertificateUse = "any"
	// CertificatesLabelled lets a Service use those whose label names its namespace.
	CertificatesLabelled CertificateUse = "labelled"
)

// given reports whether the project's side gives the load balancer to the Service.
func (s Spec) given(have State) bool {
	return s.Takeover.Listed || s.Service != "" && have.Labels[labelAdoptCluster] == s.Owner.Cluster &&
		have.Labels[labelAdoptNamespace] == s.Namespace && have.Labels[labelAdoptService] == s.Service
}

// adoption says what is missing until a load balancer that nobody owns becomes the Service's.
func (s Spec) adoption(have State) string {
	var steps []string
	if !s.given(have) {
		steps = append(steps, fmt.Sprintf(`run "hcloud load-balancer add-label %d %s=%s %s=%s %s=%s"`, have.ID,
			labelAdoptCluster, s.Owner.Cluster, labelAdoptNamespace, s.Namespace, labelAdoptService, s.Service))
	}
	if !s.Takeover.Adopt {
		steps = append(steps, "set the annotation "+annotationAdopt+" to true")
	}
	return "to make it this Service's, " + strings.Join(steps, " and ")
}

// mayUse reports whether the Service may use a certificate that it names.
func (s Spec) mayUse(c Certificate) bool {
	namespaces := strings.Split(c.Labels[labelNamespaces], ".")
	return !s.LabelledCertificates || s.Namespace != "" && slices.Contains(namespaces, s.Namespace)
}
