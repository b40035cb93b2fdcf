package lb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// LabelPeer is how the Hetzner controller marks a Service's load balancer and certificates: its
// value is the Service's UID. It stays after a takeover, so that the way back is open.
const LabelPeer = "hcloud-ccm/service-uid"

// Takeover is what a user says about a load balancer that somebody else made.
type Takeover struct {
	// Adopt allows to take over the load balancer of the right name that has no owner, if the
	// project's side agrees.
	Adopt bool
	// Listed: the configuration gives the load balancer of this name to the Service.
	Listed bool
	// OptedIn says that the health checks follow the Service, because it says how nodes are judged
	// at each port; otherwise they all stay as they were.
	OptedIn bool
	// Annotated settings do not stay as they were.
	Annotated Annotated
	// NoIPv6 keeps its IPv6 address out of the status. Otherwise it is shown, whatever the
	// Service's families: clients use it already.
	NoIPv6 bool
}

// Annotated says which settings a Service's annotations decide. Place is the location or the
// network zone, Targets how targets are reached; Interval, Timeout and Retries are those of the
// health checks.
type Annotated struct{ Name, Type, Algorithm, Public, Targets, Place, Interval, Timeout, Retries bool }

// Claim chooses, among the load balancers that were found for an owner who has none, the one that
// becomes the owner's: what the Hetzner controller made for the same Service, or what has the right
// name and no owner, if both the user and the project's side say so. Everything else belongs to
// somebody, and is an error that wraps ErrNotOwned or ErrAmbiguous; nothing at all is the zero
// State.
func Claim(want Spec, found []State) (State, error) {
	var peers []State
	for _, s := range found {
		if s.Labels[LabelPeer] == want.Owner.UID && want.Owner.UID != "" && !ownedByOthers(s, want.Owner) {
			peers = append(peers, s)
		}
	}
	switch len(peers) {
	case 0:
	case 1:
		return peers[0], nil
	default:
		return State{}, fmt.Errorf("load balancers %d and %d carry the label %s of this Service: %w", peers[0].ID, peers[1].ID, LabelPeer, ErrAmbiguous)
	}
	i := slices.IndexFunc(found, func(s State) bool { return s.Name == want.Name })
	if i < 0 {
		return State{}, nil
	}
	have := found[i]
	switch label := ownersLabel(have); {
	case label != "":
		return State{}, fmt.Errorf("load balancer %q %w: its label %s says so", want.Name, ErrNotOwned, label)
	case want.Takeover.Adopt && want.given(have):
		return have, nil
	}
	return State{}, fmt.Errorf("load balancer %d %w: %s", have.ID, ErrNotOwned, want.adoption(have))
}

// ownersLabel is a label that says whose a load balancer is, or nothing.
func ownersLabel(s State) string {
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		if label == LabelPeer || label == LabelCluster || label == LabelShared || strings.HasPrefix(label, labelServicePrefix) {
			return label
		}
	}
	return ""
}

// ownedByOthers reports whether our own labels name another cluster or Service, or say that it is
// shared.
func ownedByOthers(s State, o Owner) bool {
	cluster, marked := s.Labels[LabelCluster]
	others := slices.ContainsFunc(s.Services(), func(uid string) bool { return uid != o.UID })
	return others || s.Shared() && s.Group() != o.Group || marked && cluster != o.Cluster
}

// Against fits the spec to the load balancer that exists, or will be taken over: what stays as it
// is, what there is room for, and what cannot be. The notes say what of the wish is not fulfilled.
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
	return s, slices.Concat(notes, kept, moved, missing, trimmed, Immovable(s, have), s.unanswered(have, preferred))
}

// keepsChecks reports whether the checks are those of before: at the takeover, and after it until
// the user opts in.
func (s Spec) keepsChecks(have State) bool {
	keeps := have.Labels[LabelCheck] == checkKept || !s.Owner.Owns(have.Labels)
	return have.Exists() && keeps && !s.Takeover.OptedIn
}

// stay gives up another network, or another address in the network, where getting it would lose the
// targets of others: leaving the network drops them, and nobody knows how to bring them back.
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

// A Service's author asks for what belongs to the whole project: a load balancer that somebody else
// made, or a certificate. Whoever owns the project agrees, by labels in the cloud or in the
// configuration. The labels' values are names of Kubernetes, which the cloud takes as they are:
// both allow 63 characters.
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
	return s.Takeover.Listed || s.consented(have.Labels)
}

// consented reports whether labels give what carries them to the Service.
func (s Spec) consented(labels map[string]string) bool {
	return s.Service != "" && labels[labelAdoptCluster] == s.Owner.Cluster &&
		labels[labelAdoptNamespace] == s.Namespace && labels[labelAdoptService] == s.Service
}

// consent is the labels that do, as arguments of a command.
func (s Spec) consent() string {
	return fmt.Sprintf("%s=%s %s=%s %s=%s", labelAdoptCluster, s.Owner.Cluster, labelAdoptNamespace, s.Namespace, labelAdoptService, s.Service)
}

// adoption says what is missing until a load balancer that nobody owns becomes the Service's.
func (s Spec) adoption(have State) string {
	var steps []string
	if !s.given(have) {
		steps = append(steps, fmt.Sprintf(`run "hcloud load-balancer add-label %d %s"`, have.ID, s.consent()))
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
