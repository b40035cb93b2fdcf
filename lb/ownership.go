package lb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// LabelPeer is the Hetzner controller's label of a Service's load balancer and certificates, with
// the Service's UID as its value. It is kept after a takeover, so that the cluster can return to
// that controller.
const LabelPeer = "hcloud-ccm/service-uid"

// Takeover are the user's settings for a load balancer that this cluster did not create.
type Takeover struct {
	// Adopt permits the takeover of an unowned load balancer by name, if the project agrees.
	Adopt bool
	// Listed: the configuration assigns the load balancer of this name to the Service.
	Listed bool
	// OptedIn: the health checks follow the Service, because its annotations configure the check
	// of each port. Otherwise all checks are kept.
	OptedIn bool
	// Annotated settings are not kept.
	Annotated Annotated
	// NoIPv6 omits the IPv6 address from the status. Otherwise the status shows it whatever the
	// Service's families, because clients may use it already.
	NoIPv6 bool
}

// Annotated are the settings that annotations set. Place is the location or the network zone,
// Targets how targets are reached; Interval, Timeout and Retries are those of the health checks.
type Annotated struct {
	Name, Type, Algorithm, Public, Targets, Place, Interval, Timeout, Retries bool
}

// Claim chooses the load balancer that an owner takes over: the load balancer that the Hetzner
// controller created for the same Service, or an unowned load balancer of the right name if both
// the user and the project agree. It returns the zero State if there is no such load balancer, and
// an error that wraps ErrNotOwned or ErrAmbiguous if the load balancer must not be taken over.
func Claim(want Spec, found []State) (State, error) {
	var peers []State
	for _, s := range found {
		if s.Labels[LabelPeer] == want.Owner.UID && want.Owner.UID != "" &&
			!ownedByOthers(s, want.Owner) {
			peers = append(peers, s)
		}
	}
	switch len(peers) {
	case 0:
	case 1:
		return peers[0], nil
	default:
		return State{},
			fmt.Errorf("load balancers %d and %d carry the label %s of this Service: %w", peers[0].ID,
				peers[1].ID, LabelPeer, ErrAmbiguous)
	}
	i := slices.IndexFunc(found, func(s State) bool { return s.Name == want.Name })
	if i < 0 {
		return State{}, nil
	}
	have := found[i]
	switch label := ownersLabel(have); {
	case label != "":
		return State{},
			fmt.Errorf("load balancer %q %w: its label %s says so", want.Name, ErrNotOwned, label)
	case want.Takeover.Adopt && want.given(have):
		return have, nil
	}
	return State{}, fmt.Errorf("load balancer %d %w: %s", have.ID, ErrNotOwned, want.adoption(have))
}

func ownersLabel(s State) string {
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		if label == LabelPeer || label == LabelCluster || label == LabelShared ||
			strings.HasPrefix(label, labelServicePrefix) {
			return label
		}
	}
	return ""
}

// ownedByOthers reports whether our labels assign it to another cluster, Service or group.
func ownedByOthers(s State, o Owner) bool {
	cluster, marked := s.Labels[LabelCluster]
	others := slices.ContainsFunc(s.Services(), func(uid string) bool { return uid != o.UID })
	return others || s.Shared() && s.Group() != o.Group || marked && cluster != o.Cluster
}

// Against adapts the spec to an existing load balancer: to settings that are kept, its capacity,
// and impossible changes. The notes are about unfulfilled requests.
func (s Spec) Against(have State, preferred []Node) (Spec, []Note) {
	var notes []Note
	if s.AsFound {
		missing := s.unaddressed()
		s, trimmed := s.keepUnaddressed(have).Fit(have, preferred)
		return s, slices.Concat(missing, trimmed)
	}
	if s.keepsChecks(have) {
		s.ChecksKept = true
		kept := s.KeepChecks(ByPort(have.Listeners))
		if !slices.Equal(kept.Listeners, s.Listeners) {
			notes = append(notes, warningNote(ReasonCheckKept, annotationOwnHealthCheck, "",
				"the load balancer was taken over and keeps its health checks: set this to "+
					"kube-proxy, so that they follow the traffic policy, or to node-port"))
		}
		s = kept
	}
	s, kept := s.keep(have)
	s, waiting := s.keepPorts(have)
	kept = slices.Concat(kept, waiting)
	s, moved := s.stay(have)
	missing := s.unaddressed()
	s = s.keepUnaddressed(have)
	s, trimmed := s.Fit(have, preferred)
	return s, slices.Concat(notes, kept, moved, missing, trimmed, Immovable(s, have))
}

// keepsChecks reports whether checks from before the takeover are kept: until the user opts in.
func (s Spec) keepsChecks(have State) bool {
	keeps := have.Labels[LabelCheck] == checkKept || !s.Owner.Owns(have.Labels)
	return have.Exists() && keeps && !s.Takeover.OptedIn
}

// stay keeps the network, or the address in the network, if leaving it would drop targets that
// this cluster did not add and cannot restore.
func (s Spec) stay(have State) (Spec, []Note) {
	if have.OtherTargets == 0 || have.Network == 0 || !s.moves(have) {
		return s, nil
	}
	if s.Network != have.Network {
		note := errorNote(ReasonImmutable, "", "",
			"the load balancer stays in network %d and does not join network %d, because leaving "+
				"would drop targets that this cluster did not add: remove those",
			have.Network, s.Network)
		s.Network, s.Attachment = have.Network, Attachment{}
		return s, []Note{note}
	}
	field, value := annotationPrivateIPv4, s.PrivateIP.String()
	if !s.PrivateIP.IsValid() {
		field, value = annotationPrivateRange, s.PrivateRange.String()
	}
	note := errorNote(ReasonImmutable, field, value,
		"the load balancer keeps its address %s, because leaving the network would drop targets "+
			"that this cluster did not add: remove those, or this",
		have.PrivateIP)
	s.PrivateIP, s.PrivateRange = netip.Addr{}, netip.Prefix{}
	return s, []Note{note}
}

// A load balancer that another client created and a certificate belong to the whole project, so
// the project's owner must agree to a Service's request, by labels in the cloud or in the
// configuration. Label values are Kubernetes names as they are: both allow 63 characters.
const (
	labelAdoptCluster   = "underlay.dev/adopt-cluster"
	labelAdoptNamespace = "underlay.dev/adopt-namespace"
	labelAdoptService   = "underlay.dev/adopt-service"
	// labelNamespaces lists the namespaces that may use a certificate, separated by dots.
	labelNamespaces = "underlay.dev/namespaces"
)

// Adoptable is a load balancer that the configuration assigns to a Service.
type Adoptable struct{ Name, Namespace, Service string }

// CertificateUse limits the certificates of the project that a Service may reference.
type CertificateUse string

const (
	// CertificatesAny allows every certificate.
	CertificatesAny CertificateUse = "any"
	// CertificatesLabelled allows certificates with a label that lists the Service's namespace.
	CertificatesLabelled CertificateUse = "labelled"
)

func (s Spec) given(have State) bool {
	return s.Takeover.Listed || s.consented(have.Labels)
}

// consented reports whether labels of a cloud object assign it to the Service.
func (s Spec) consented(labels map[string]string) bool {
	return s.Service != "" && labels[labelAdoptCluster] == s.Owner.Cluster &&
		labels[labelAdoptNamespace] == s.Namespace && labels[labelAdoptService] == s.Service
}

// consent returns the labels that consented requires, as command-line arguments.
func (s Spec) consent() string {
	return fmt.Sprintf("%s=%s %s=%s %s=%s", labelAdoptCluster, s.Owner.Cluster, labelAdoptNamespace,
		s.Namespace, labelAdoptService, s.Service)
}

// adoption returns the steps that let the Service take over an unowned load balancer.
func (s Spec) adoption(have State) string {
	var steps []string
	if !s.given(have) {
		steps = append(steps, fmt.Sprintf(`run "hcloud load-balancer add-label %d %s"`, have.ID,
			s.consent()))
	}
	if !s.Takeover.Adopt {
		steps = append(steps, "set the annotation "+annotationAdopt+" to true")
	}
	return "to make it this Service's, " + strings.Join(steps, " and ")
}

func (s Spec) mayUse(c Certificate) bool {
	namespaces := strings.Split(c.Labels[labelNamespaces], ".")
	return !s.LabelledCertificates || s.Namespace != "" && slices.Contains(namespaces, s.Namespace)
}
